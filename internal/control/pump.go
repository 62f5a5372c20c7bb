package control

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/node"
)

const (
	sigKill = 9
	// killedCode is the exit code of what SIGKILL ended, and of every command
	// that ended with its session.
	killedCode = 128 + sigKill
	// retryFirst and retryMost bound the wait before the output is asked for
	// again after an error that is not the end: a lost connection, or a full
	// disk of the host, during which the guest holds the output and blocks
	// the command.
	retryFirst = 100 * time.Millisecond
	retryMost  = 10 * time.Second
)

// pump copies the command's output from the guest to the log until its end.
func (cmd *command) pump() {
	defer cmd.s.wg.Done()
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		before := cmd.log.cursor()
		var err error
		if _, ended := cmd.log.result(); !ended {
			err = cmd.m.Attach(cmd.s.ctx, cmd.id, before, cmd.take)
		}
		if code, ended := cmd.log.result(); ended {
			cmd.finish(code)
			return
		}
		if cmd.log.cursor() > before {
			wait = retryFirst
		}
		if cmd.s.ctx.Err() != nil {
			cmd.lose(lastWords(cmd.m, cmd.s.memoryMB()))
			return
		}
		if err == nil || errors.Is(err, guest.ErrNoCommand) || errors.Is(err, guest.ErrCursor) || errors.Is(err, errLogBroken) {
			cmd.s.c.log.Warn("output of command ended early", "session", cmd.s.id, "command", cmd.id, "err", err)
			cmd.kill()
			cmd.lose("glovebox: the sandbox lost track of this command\n")
			return
		}
		select {
		case <-cmd.m.Done():
			cmd.lose(lastWords(cmd.m, cmd.s.memoryMB()))
			return
		default:
		}
		if !isStopped(err) { // else the machine is about to be done
			cmd.s.c.log.Warn("output of command interrupted", "session", cmd.s.id, "command", cmd.id, "err", err, "again", wait)
		}
		select {
		case <-cmd.s.c.after(wait):
		case <-cmd.m.Done():
		case <-cmd.s.ctx.Done():
		}
	}
}

// take is the sink of the output.
func (cmd *command) take(off int64, b []byte) error {
	if err := cmd.log.append(off, b); err != nil {
		return err
	}
	if code, ended := cmd.log.result(); ended {
		cmd.finish(code)
	}
	return nil
}

// lastWords are what stderr tells last when the machine ended by itself.
func lastWords(m node.Machine, memoryMB int) string {
	if err := m.Err(); err != nil && !isStopped(err) {
		return "glovebox: the sandbox ended: " + reasonOf(err, memoryMB) + "\n"
	}
	return ""
}

func (s *session) memoryMB() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.VCPUs * api.MemoryPerVCPU
}

// lose ends a command of which no exit code is known.
func (cmd *command) lose(lines string) {
	if err := cmd.log.end(killedCode, cmd.s.c.now(), lines); err != nil {
		cmd.s.c.log.Error("close command log", "command", cmd.id, "err", err)
	}
	code, _ := cmd.log.result()
	cmd.finish(code)
}

// finish records the end, once, and lets go of the command.
func (cmd *command) finish(code int) {
	cmd.once.Do(func() {
		if cmd.timer != nil {
			cmd.timer.Stop()
		}
		s := cmd.s
		cmd.mu.Lock()
		cmd.rec.ExitCode = &code
		cmd.rec.DurationMs = max(0, s.c.clock.Now().Sub(cmd.begun).Milliseconds())
		cmd.rec.LostBytes, cmd.rec.KeptBytes, cmd.rec.ExitOffset = cmd.log.lost()
		rec := cmd.rec
		cmd.mu.Unlock()
		if err := s.c.store.UpdateCommand(context.Background(), rec); err != nil {
			s.c.log.Error("record command", "command", cmd.id, "err", err)
		}
		s.mu.Lock()
		delete(s.commands, cmd.id)
		s.mu.Unlock()
		close(cmd.done)
		cmd.log.release()
	})
}

// killPatience is how long a guest may fail to end a command whose time is up
// before its machine is ended instead: a time-out holds whatever the guest does.
const killPatience = time.Minute

// timeUp kills the command and all its descendants, again while that fails: a
// guest may be too busy to do it (a fork bomb), or not run at all.
func (cmd *command) timeUp() {
	c := cmd.s.c
	c.log.Debug("command ran out of time", "command", cmd.id, "timeout", cmd.timeout)
	giveUp := c.clock.Now().Add(killPatience)
	for wait := retryFirst; !cmd.kill(); wait = min(2*wait, retryMost) {
		if c.clock.Now().After(giveUp) {
			cmd.s.stop("a command could not be ended at its time-out: the sandbox did not answer")
			return
		}
		select {
		case <-c.after(wait):
		case <-cmd.done:
			return
		case <-cmd.s.ctx.Done():
			return
		}
	}
}

// kill ends the command and all its descendants, for nobody that waits. It
// tells whether the signal was sent or there is nothing left to send it to.
func (cmd *command) kill() bool {
	ctx, cancel := context.WithTimeout(cmd.s.ctx, startTimeout)
	defer cancel()
	err := cmd.m.Signal(ctx, cmd.id, sigKill, true)
	if err == nil || isOver(err) || cmd.s.ctx.Err() != nil {
		return true
	}
	cmd.s.c.log.Error("kill command", "command", cmd.id, "err", err)
	return false
}

// isOver tells whether err means that the command has ended already.
func isOver(err error) bool {
	return errors.Is(err, guest.ErrFinished) || errors.Is(err, guest.ErrNoCommand) || isStopped(err)
}

// dropLog removes the log of a command that never was.
func (cmd *command) dropLog() {
	cmd.log.mu.Lock()
	defer cmd.log.mu.Unlock()
	cmd.log.f.Close() //nolint:errcheck // it is removed
	cmd.log.f, cmd.log.ended = nil, true
	if err := os.Remove(cmd.log.path); err != nil {
		cmd.s.c.log.Error("remove command log", "command", cmd.id, "err", err)
	}
}
