package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

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
	body := c.untilEnded(p, id, cmd)
	defer body.stop()
	err = p.WriteStdin(c.r.Context(), id, cmd, body)
	if body.ended() {
		return c.ok(api.Empty{}, nil) // what nobody reads any more is no error
	}
	return c.ok(api.Empty{}, err)
}

// stdinBody is a request's body that ends when the command does, also in the
// middle of a Read that would wait for a client that has nothing to send.
type stdinBody struct {
	body io.Reader
	over chan struct{} // closed once the command has ended
	stop func()        // ends the watch
	life context.Context
}

func (c *call) untilEnded(p Project, session, cmd string) *stdinBody {
	ctl := http.NewResponseController(c.w)
	// Without full duplex the server would read the body's rest before it
	// answers: that may never come.
	_ = ctl.EnableFullDuplex()
	c.closeAfter()
	ctx, cancel := c.streamContext()
	b := &stdinBody{body: c.r.Body, over: make(chan struct{}), life: c.s.life}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := p.WaitCommand(ctx, session, cmd); err == nil {
			close(b.over)
		}
		// Ends a Read under way, at the command's end and at the server's.
		_ = ctl.SetReadDeadline(time.Unix(1, 0))
	}()
	b.stop = func() { cancel(); <-done }
	return b
}

func (b *stdinBody) ended() bool {
	select {
	case <-b.over:
		return true
	default:
		return false
	}
}

// Read returns io.EOF only for the body's own end or the command's: a client
// that is cut off must not look like one that has sent all.
func (b *stdinBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return n, err
	case b.ended():
		return n, io.EOF
	case b.life.Err() != nil:
		return n, errShutdown
	}
	return n, api.BadRequest("body: cut off; the command's stdin stays open")
}
