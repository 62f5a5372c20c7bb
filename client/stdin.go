package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
)

// WriteStdin sends r to a command that was started with a Stdin, until r
// ends, which closes the command's stdin, or until the command does.
func (c *Command) WriteStdin(ctx context.Context, r io.Reader) error {
	return wrap(c.c.call(ctx, stdinRequest(c, r), nil), "stdin of command %s", c.ID())
}

func stdinRequest(c *Command, r io.Reader) request {
	return request{
		method: http.MethodPost, path: c.path("stdin"), body: r,
		header: http.Header{"Content-Type": {"application/octet-stream"}},
	}
}

// sendStdin sends r in the background until stop is called. An error of r or
// of the sending shows to the command as the input's end or not at all, as in
// a pipe; the command's own exit says what it made of that.
//
// r is copied through a pipe because the HTTP transport waits for a Read that
// is under way: so stop does not depend on r.
func (c *Command) sendStdin(ctx context.Context, r io.Reader) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err)
	}()
	var sent sync.WaitGroup
	sent.Go(func() {
		err := c.c.call(ctx, stdinRequest(c, pr), nil)
		pr.CloseWithError(errors.Join(err, io.ErrClosedPipe))
	})
	return func() {
		cancel()
		pr.CloseWithError(io.ErrClosedPipe)
		sent.Wait()
	}
}
