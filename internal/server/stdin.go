package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

// linger is how long a client that was answered in the middle of its body
// gets to notice that: closing at once could make it lose the answer.
const linger = time.Second

// commandStdin sends the body to the command's stdin as it comes. The answer
// comes when the body has ended or the command has.
func (c *call) commandStdin() error {
	p, id, err := c.session()
	if err != nil {
		return err
	}
	cmd := c.param("cmd")
	if _, err := p.GetCommand(c.r.Context(), id, cmd); err != nil {
		return err
	}
	ctl := http.NewResponseController(c.w)
	// Without full duplex the server would read the body's rest before it
	// answers: that may never come.
	_ = ctl.EnableFullDuplex()
	c.closeAfter()
	body := c.readStdin()
	over, stop := c.watchEnd(p, id, cmd, body)
	err = p.WriteStdin(c.r.Context(), id, cmd, body.out)
	body.out.CloseWithError(io.ErrClosedPipe) // what comes now is discarded
	stop()
	if isClosed(over) {
		err = nil // what nobody reads any more is no error
	}
	if err != nil {
		c.writeError(c.clientError(err))
	} else {
		c.writeJSON(http.StatusOK, api.Empty{})
	}
	_ = ctl.Flush()
	_ = ctl.SetReadDeadline(time.Now().Add(linger))
	<-body.done
	return nil
}

// stdinBody is a request's body that can be ended while a Read waits for a
// client that has nothing to send.
type stdinBody struct {
	out  *io.PipeReader
	in   *io.PipeWriter
	done chan struct{} // closed when the body will not be read any more
}

// readStdin passes the body on until it or its reader ends, and then discards
// what still comes. The end of out is io.EOF only if that is the body's: a
// client that is cut off must not look like one that has sent all.
func (c *call) readStdin() *stdinBody {
	b := &stdinBody{done: make(chan struct{})}
	b.out, b.in = io.Pipe()
	go func() {
		defer close(b.done)
		_, err := io.Copy(b.in, c.r.Body)
		if errors.Is(err, io.ErrClosedPipe) {
			_, _ = io.Copy(io.Discard, c.r.Body)
			return
		}
		if err != nil {
			err = api.BadRequest("body: cut off; the command's stdin stays open")
		}
		b.in.CloseWithError(err)
	}()
	return b
}

// watchEnd ends body when the command has ended, and then closes over, or
// when the server shuts down.
func (c *call) watchEnd(p Project, session, cmd string, body *stdinBody) (over <-chan struct{}, stop func()) {
	ctx, cancel := c.streamContext()
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		if _, err := p.WaitCommand(ctx, session, cmd); err == nil {
			close(ended)
			body.in.CloseWithError(io.EOF)
			return
		}
		if errors.Is(context.Cause(ctx), errShutdown) {
			body.in.CloseWithError(errShutdown)
		}
	}()
	return ended, func() { cancel(); <-done }
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
