package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// tickTime is how often orphans are looked for while there are processes.
const tickTime = 500 * time.Millisecond

// reap collects every process that has ended, the commands' and orphans, and
// tells whether there are any left. A pid is valid until it is collected here,
// so a signal that is sent from this thread never hits another process.
func (a *agent) reap() bool {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return err == nil
		}
		if c := a.byPID[pid]; c != nil {
			c.exit(ws)
		}
		delete(a.warming, pid)
	}
}

// tick sees to it that orphans are looked for.
func (a *agent) tick() {
	if a.orphans.armed {
		return
	}
	a.orphans.f = func() {
		if a.reap() {
			a.tick()
		}
	}
	a.arm(&a.orphans, time.Now().Add(tickTime))
}

func (s *session) signal(id uint32, p []byte) {
	var m wire.Signal
	if m.Decode(p) != nil {
		s.fail(id, badRequest)
		return
	}
	s.a.reap()
	c := s.a.commands[m.ID]
	switch {
	case c == nil:
		s.fail(id, noCommand)
	case c.exited:
		s.fail(id, finished)
	case m.Tree:
		k := &killing{s: s, id: id, a: s.a, cgroup: c.cgroup, sig: syscall.Signal(m.Sig), until: time.Now().Add(killTime)}
		if k.sig == syscall.SIGKILL {
			k.cgroup.hold()
		}
		s.open(id, k, nil)
		k.timer.f = k.pass
		k.pass()
	default:
		s.answer(id, c.signal(syscall.Signal(m.Sig)))
	}
}

// signal sends sig to the process group of the command, whose process is not
// reaped. SIGHUP to one with a terminal also reaches the job in front, as when
// a terminal is closed.
func (c *command) signal(sig syscall.Signal) *wire.Failure {
	err := syscall.Kill(-c.pid, sig)
	if c.tty && sig == syscall.SIGHUP {
		if front, e := unix.IoctlGetInt(c.in.fd, unix.TIOCGPGRP); e == nil && front > 1 && front != c.pid {
			_ = syscall.Kill(-front, sig)
			_ = syscall.Kill(-front, syscall.SIGCONT)
		}
		_ = syscall.Kill(-c.pid, syscall.SIGCONT)
	}
	if err != nil {
		return errnoFailure("kill", err)
	}
	return nil
}

const (
	// lonelyTime is how long a terminal waits for somebody to attach to it. A
	// host that lost its connection does so at once, one that died never.
	lonelyTime = 30 * time.Second
	// hangupGrace is what its command gets to end after SIGHUP.
	hangupGrace = 5 * time.Second
)

// alone is called when nobody is attached to the command. One on a terminal
// is hung up where that lasts: it belongs to its user's connection.
func (c *command) alone() {
	if !c.tty || c.done {
		return
	}
	c.lonely.f = c.hangUp
	c.a.arm(&c.lonely, time.Now().Add(lonelyTime))
}

func (c *command) hangUp() {
	if !c.exited {
		c.signal(syscall.SIGHUP)
	}
	c.lonely.f = func() {
		if c.cgroup == nil {
			return
		}
		k := &killing{a: c.a, cgroup: c.cgroup, sig: syscall.SIGKILL, until: time.Now().Add(killTime)}
		k.cgroup.hold()
		k.timer.f = k.pass
		k.pass()
	}
	c.a.arm(&c.lonely, time.Now().Add(hangupGrace))
}

// killTime bounds how long a tree is hunted.
const killTime = 10 * time.Second

// killing signals a command's whole tree. SIGKILL is repeated until no process
// is left: one that was forked between the reading of the list and its
// parent's death is on the next one.
type killing struct {
	a      *agent
	s      *session // nil: nobody waits for the answer
	id     uint32
	cgroup *cgroup
	sig    syscall.Signal
	timer  timer
	until  time.Time
	wait   time.Duration
}

func (k *killing) frame(wire.Kind, []byte) bool { return false }

func (k *killing) stop() { k.s = nil }

func (k *killing) pass() {
	pids, err := k.cgroup.pids(k.a.scratch)
	for _, pid := range pids {
		_ = syscall.Kill(pid, k.sig)
	}
	switch {
	case err != nil:
		k.end(errnoFailure("list the command's processes", err))
	case k.sig != syscall.SIGKILL || len(pids) == 0:
		k.end(nil)
	case time.Now().After(k.until):
		k.end(&wire.Failure{Code: wire.CodeErrno, Errno: uint16(syscall.EBUSY), Text: "kill: processes are left"})
	default:
		k.wait = min(2*k.wait+time.Millisecond, 50*time.Millisecond)
		k.a.arm(&k.timer, time.Now().Add(k.wait))
	}
}

func (k *killing) end(f *wire.Failure) {
	if k.sig == syscall.SIGKILL {
		k.cgroup.release()
	}
	k.a.reap()
	if k.s != nil {
		k.s.drop(k.id)
		k.s.answer(k.id, f)
	}
}
