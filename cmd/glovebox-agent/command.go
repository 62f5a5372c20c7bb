package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

const (
	// maxCommands bounds the commands that are known, running or not.
	maxCommands = 16384
	// keepFinished is how many finished commands whose log is stored are
	// known before the oldest is forgotten.
	keepFinished = 1024
	// After a command's process has ended, its output is over when nothing
	// came for graceIdle, and graceMax later at the latest: what still holds
	// its pipes is another process, which lives on.
	graceIdle = 100 * time.Millisecond
	graceMax  = time.Second
	// Reading stops below roomLow bytes of room, and goes on at roomHigh.
	roomLow  = 1 << 10
	roomHigh = 64 << 10
)

// command is a process that was started by order, and its log.
//
// Life cycle: running → exited (its process was reaped; its pipes may still
// bring output) → done (the exit record is written).
type command struct {
	a      *agent
	id     string
	pid    int
	pidfd  int
	cgroup *cgroup
	ring   ring
	out    []*output // stdout and stderr, or the terminal
	in     *input    // nil: /dev/null
	tty    bool
	exited bool
	done   bool
	code   int32
	att    *attachment // the newest
	lonely timer       // of a terminal to which nobody is attached
	grace  timer
	until  time.Time // graceMax after the exit
}

// output is a descriptor that brings a command's output.
type output struct {
	c       *command
	fd      int
	kind    wire.RecordKind
	want    int  // bytes of room that the next read should have
	polite  bool // O_NONBLOCK is set: it may be read without being asked to
	blocked bool // not watched: the ring is full
	discard bool // the command is done; whoever still writes must not block
	closed  bool
	writes  bool  // a terminal that has input to take
	again   timer // ends a pause
}

func (o *output) event(ev uint32) {
	if o.c.in != nil && o.c.tty && ev&unix.EPOLLOUT != 0 {
		o.c.in.pump()
	}
	if o.closed || ev&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) == 0 {
		return
	}
	if o.discard {
		if n, err := syscall.Read(o.fd, o.c.a.scratch); n <= 0 && err != syscall.EAGAIN && err != syscall.EINTR {
			o.close()
		}
		return
	}
	if ev == unix.EPOLLHUP && !o.c.tty { // nothing is left in the pipe
		o.close()
	} else if o.read() {
		o.c.log()
	}
	if o.c.exited {
		o.c.settle()
	}
}

// read moves one read's worth of output into the ring and tells whether it
// moved any.
func (o *output) read() bool {
	r := &o.c.ring
	room := r.room(max(o.want, roomLow))
	if room < roomLow {
		o.blocked = true
		o.c.a.remove(o.fd)
		return false
	}
	room = min(room, wire.MaxRecord)
	n, err := r.readFrom(o.fd, o.kind, room)
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return false
	}
	if n <= 0 {
		if o.c.tty && !o.c.exited {
			o.pause()
		} else {
			o.close()
		}
		return false
	}
	if n == room {
		o.want = min(4*n, wire.MaxRecord)
	}
	return true
}

// pause stops watching a terminal that no process has open, for a while: the
// command may have closed its own on the way to its end, or may open it again.
// To close it would hang the command up.
func (o *output) pause() {
	o.c.a.remove(o.fd)
	o.again.f = func() {
		if !o.closed && !o.c.exited && o.c.a.add(o.fd, o.events(), o) != nil {
			o.close()
		}
	}
	o.c.a.arm(&o.again, time.Now().Add(graceIdle))
}

func (o *output) close() {
	if !o.closed {
		o.closed = true
		o.c.a.disarm(&o.again)
		o.c.a.close(o.fd)
	}
}

// drain reads until there is nothing, or the ring is full.
func (o *output) drain() {
	if !o.closed && !o.polite {
		o.polite = true
		_ = syscall.SetNonblock(o.fd, true)
	}
	for !o.closed && !o.blocked && o.read() {
	}
}

// log tells the newest attachment that the log has grown.
func (c *command) log() {
	if c.att != nil {
		c.att.s.wake()
	}
}

// event is that of pidfd.
func (c *command) event(uint32) {
	var ws syscall.WaitStatus
	if pid, err := syscall.Wait4(c.pid, &ws, syscall.WNOHANG, nil); err == nil && pid == c.pid {
		c.exit(ws)
	}
}

// exit is called when the process was reaped.
func (c *command) exit(ws syscall.WaitStatus) {
	c.exited = true
	delete(c.a.byPID, c.pid)
	c.a.close(c.pidfd)
	c.code = int32(ws.ExitStatus())
	if ws.Signaled() {
		c.code = 128 + int32(ws.Signal())
	}
	c.until = time.Now().Add(graceMax)
	c.drain()
	c.settle()
}

func (c *command) drain() {
	for _, o := range c.out {
		o.drain()
	}
	c.log()
}

// settle decides, after the exit, whether the output is over: at the end of
// all pipes; or when the grace is over; never while the ring is full, since
// the pipes may then hold what the process itself wrote.
func (c *command) settle() {
	if c.done {
		return
	}
	open := false
	for _, o := range c.out {
		if o.blocked {
			c.a.disarm(&c.grace)
			return
		}
		open = open || !o.closed
	}
	if !open {
		c.finish()
		return
	}
	at := time.Now().Add(graceIdle)
	if at.After(c.until) {
		at = c.until
	}
	c.grace.f = c.graceOver
	c.a.arm(&c.grace, at)
}

func (c *command) graceOver() {
	for _, o := range c.out {
		if !o.closed {
			o.read()
		}
		if o.blocked {
			return // settle runs again when there is room
		}
	}
	c.finish()
}

// finish writes the exit record.
func (c *command) finish() {
	c.a.disarm(&c.grace)
	c.a.disarm(&c.lonely)
	c.done = true
	c.ring.room(0) // the ring may not have a buffer yet
	c.ring.append(wire.AppendExit(nil, c.code, time.Now().UnixMilli()))
	if c.in != nil {
		c.in.close()
	}
	for _, o := range c.out {
		if c.tty {
			o.close() // hangs the terminal up for what still uses it
		}
		o.discard = true
	}
	c.log()
	c.a.cgroups.put(c.cgroup)
	c.cgroup = nil
	c.a.touch(&c.a.cgroups) // after the session that log has touched
	c.a.keep(c)
}

// keep remembers a finished command until the host forgets it or there are
// too many.
func (a *agent) keep(c *command) {
	a.finished = append(a.finished, c)
	if len(a.finished) <= keepFinished {
		return
	}
	for i, old := range a.finished {
		if old.ring.used() == 0 && old.att == nil {
			a.finished = append(a.finished[:i], a.finished[i+1:]...)
			delete(a.commands, old.id)
			return
		}
	}
}

// forgetCommand forgets a finished command and what is left of its log.
func (a *agent) forgetCommand(c *command) {
	delete(a.commands, c.id)
	for i, x := range a.finished {
		if x == c {
			a.finished = append(a.finished[:i], a.finished[i+1:]...)
			break
		}
	}
	if c.att != nil {
		c.att.end(noCommand)
	}
	putBuf(c.ring.buf)
	c.ring = ring{}
}

// acked is called when the host has stored more of the log.
func (c *command) acked() {
	if c.done {
		c.ring.release()
		return
	}
	if c.ring.room(roomHigh) < roomHigh {
		return
	}
	woken := false
	for _, o := range c.out {
		if !o.blocked {
			continue
		}
		o.blocked = false
		woken = true
		if err := c.a.add(o.fd, o.events(), o); err != nil {
			o.close()
		}
	}
	if woken && c.exited {
		c.until = time.Now().Add(graceMax)
		c.drain()
		c.settle()
	}
}

func (o *output) events() uint32 {
	if o.writes {
		return unix.EPOLLIN | unix.EPOLLOUT
	}
	return unix.EPOLLIN
}
