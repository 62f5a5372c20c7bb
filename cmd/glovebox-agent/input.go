package main

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// maxInputs bounds the requests that wait for a command to read its stdin.
const maxInputs = 64

// input is a command's stdin: the writing end of a pipe, or a terminal.
type input struct {
	c       *command
	fd      int
	term    *output // the terminal's reading half, which owns fd
	queue   []*stdinRequest
	ending  bool // close when the queue is empty
	closed  bool
	watched bool
}

// stdinRequest is answered when its data is written.
type stdinRequest struct {
	s    *session
	id   uint32
	in   *input
	data []byte
}

func (r *stdinRequest) frame(wire.Kind, []byte) bool { return false }

func (r *stdinRequest) stop() {
	for i, x := range r.in.queue {
		if x == r {
			r.in.queue = append(r.in.queue[:i], r.in.queue[i+1:]...)
			break
		}
	}
	r.in.pump()
}

func (s *session) stdin(id uint32, p []byte) {
	var m wire.Stdin
	if m.Decode(p) != nil {
		s.fail(id, badRequest)
		return
	}
	c := s.a.commands[m.ID]
	if c == nil {
		s.fail(id, noCommand)
		return
	}
	if f := c.takesInput(); f != nil {
		s.fail(id, f)
		return
	}
	if len(c.in.queue) >= maxInputs {
		s.fail(id, &wire.Failure{Code: wire.CodeLimit, Text: "writes to a command's stdin"})
		return
	}
	r := &stdinRequest{s: s, id: id, in: c.in, data: append([]byte(nil), m.Data...)}
	s.open(id, r, nil)
	c.in.queue = append(c.in.queue, r)
	c.in.pump()
}

func (c *command) takesInput() *wire.Failure {
	switch {
	case c.exited:
		return finished
	case c.in == nil:
		return &wire.Failure{Code: wire.CodeBadRequest, Text: "the command was started without stdin"}
	case c.in.closed || c.in.ending:
		return &wire.Failure{Code: wire.CodeErrno, Errno: uint16(syscall.EPIPE), Text: "write stdin"}
	}
	return nil
}

// closeStdin ends the input after what is queued. A terminal has no end of
// its own: it gets the character that means it.
func (c *command) closeStdin() *wire.Failure {
	if f := c.takesInput(); f != nil {
		return f
	}
	if c.tty {
		c.in.queue = append(c.in.queue, &stdinRequest{in: c.in, data: []byte{4}})
	} else {
		c.in.ending = true
	}
	c.in.pump()
	return nil
}

func (c *command) resize(rows, cols uint16) *wire.Failure {
	if c.exited {
		return finished
	}
	if !c.tty {
		return &wire.Failure{Code: wire.CodeBadRequest, Text: "the command has no terminal"}
	}
	if err := setSize(c.in.fd, rows, cols); err != nil {
		return errnoFailure("resize the terminal", err)
	}
	return nil
}

func (in *input) event(uint32) { in.pump() }

// pump writes what the command takes now.
func (in *input) pump() {
	for !in.closed && len(in.queue) > 0 {
		r := in.queue[0]
		n, err := syscall.Write(in.fd, r.data)
		if err == syscall.EINTR {
			continue
		}
		if err == syscall.EAGAIN {
			in.watch(true)
			return
		}
		if err != nil {
			in.fail(errnoFailure("write stdin", err))
			break
		}
		if r.data = r.data[n:]; len(r.data) > 0 {
			continue
		}
		in.queue = in.queue[1:]
		r.answer(nil)
	}
	in.watch(false)
	if in.ending && len(in.queue) == 0 {
		in.close()
	}
}

func (r *stdinRequest) answer(f *wire.Failure) {
	if r.s != nil {
		r.s.drop(r.id)
		r.s.answer(r.id, f)
	}
}

// fail answers all that waits.
func (in *input) fail(f *wire.Failure) {
	queue := in.queue
	in.queue = nil
	for _, r := range queue {
		r.answer(f)
	}
}

// watch waits for room, or no longer does.
func (in *input) watch(on bool) {
	if in.closed || in.watched == on {
		return
	}
	in.watched = on
	switch o := in.term; {
	case o != nil:
		o.writes = on
		if !o.closed && !o.blocked {
			in.c.a.mod(o.fd, o.events())
		}
	case on:
		if err := in.c.a.add(in.fd, unix.EPOLLOUT, in); err != nil {
			in.fail(errnoFailure("write stdin", syscall.ENOMEM))
		}
	default:
		in.c.a.remove(in.fd)
	}
}

// close ends the input; a terminal's descriptor is its output's to close.
func (in *input) close() {
	if in.closed {
		return
	}
	in.fail(finished)
	in.closed = true
	if in.term == nil {
		in.c.a.close(in.fd)
	}
}
