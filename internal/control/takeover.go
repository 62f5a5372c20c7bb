package control

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// takeOverParallel is how many sessions are taken over at once.
const takeOverParallel = 8

// diedReason is why sessions end that a dead server left.
const diedReason = "the server died while it ran"

// lostSession is one that could not be taken over.
type lostSession struct {
	session store.Session
	why     string
}

// takeOverAll takes over what it can and returns the others.
func (c *Control) takeOverAll(ctx context.Context, sessions []store.Session) (lost []lostSession) {
	var mu sync.Mutex
	g := new(errgroup.Group)
	g.SetLimit(takeOverParallel)
	for _, se := range sessions {
		g.Go(func() error {
			why := diedReason
			if c.cfg.TakeOver && se.Machine != nil {
				err := c.takeOver(ctx, se)
				if err == nil {
					return nil
				}
				c.log.Warn("take over session", "session", se.ID, "sandbox", se.SandboxName, "err", err)
				why += ", and the next one could not take it over: " + err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, lostSession{se, why})
			return nil
		})
	}
	_ = g.Wait() // none returns an error
	return lost
}

// takeOver makes a session live that a dead server left running.
func (c *Control) takeOver(ctx context.Context, se store.Session) error {
	sb, err := c.store.SandboxByID(ctx, se.SandboxID)
	if err != nil {
		return err
	}
	img, err := c.pinnedImage(ctx, se.Image)
	if err != nil {
		return err
	}
	policy, err := parsePolicy(se.NetworkPolicy)
	if err != nil {
		return err
	}
	commands, err := c.store.ListCommands(ctx, se.ID)
	if err != nil {
		return err
	}
	s := c.newSession(se, img, sb.SandboxSpec)
	s.layers = stored(se.Layers)
	if s.drives, err = c.takeOverDrives(ctx, se); err != nil {
		return err
	}
	m, err := c.node.Adopt(ctx, s.machineSpec(se, policy), se.Machine)
	if err != nil {
		return err
	}
	if err := c.register(s); err != nil {
		return errors.Join(err, m.Stop(context.WithoutCancel(ctx)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.Status = api.StatusRunning
	s.runsOn(m, time.UnixMilli(se.StartedAt), sb.Ports)
	for _, rec := range commands {
		if rec.ExitCode == nil {
			s.takeOverCommand(m, rec)
		}
	}
	if se.Status == api.StatusStopping {
		// The server died while it did this, so its disk may not be kept yet.
		s.beginStop(api.StatusStopped, se.Reason)
		return nil
	}
	// One whose snapshot was under way goes on: nobody was told that it ended.
	return s.save(ctx)
}

// takeOverCommand goes on with the output of a command where the log ends.
// Held: mu.
func (s *session) takeOverCommand(m node.Machine, rec store.Command) {
	c := s.c
	cmd := &command{s: s, m: m, id: rec.ID, stdin: rec.Stdin, timeout: api.Milliseconds(rec.Timeout),
		begun: time.UnixMilli(rec.StartedAt), done: make(chan struct{}), rec: rec}
	var err error
	if cmd.log, err = reopenLog(c.logPath(s.id, rec.ID), cmp.Or(rec.LogLimit, c.cfg.Limits.CommandLogSize)); err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			c.log.Error("reopen the log of a command", "session", s.id, "command", rec.ID, "err", err)
		}
		// What it has written cannot be told any more, so it cannot go on.
		cmd.log = newLog("", 0)
		cmd.log.ended, cmd.log.code = true, killedCode
		c.wg.Go(func() { cmd.kill() })
	}
	s.commands[cmd.id] = cmd
	s.wg.Add(1)
	if cmd.timeout > 0 {
		cmd.timer = c.clock.AfterFunc(cmd.begun.Add(cmd.timeout).Sub(c.clock.Now()), cmd.timeUp)
	}
	go cmd.pump()
}
