package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
)

var waitQuery = url.Values{"wait": {"true"}}

// WriteStdin sends r to a command that was started with a Stdin, until r
// ends, which closes the command's stdin, or until the command or ctx does.
// A Read that blocks beyond that keeps a goroutine until it returns.
func (c *Command) WriteStdin(ctx context.Context, r io.Reader) error {
	sent, stop := c.sendStdin(ctx, r)
	defer stop()
	// The connection may be lost while r has nothing to send, which nothing
	// would notice; the command's end is asked for beside it.
	wait, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer func() { cancel(); watch.Wait() }()
	ended := make(chan error, 1)
	watch.Go(func() { ended <- c.get(wait, waitQuery) })
	var err error
	select {
	case err = <-sent:
	case err = <-ended:
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // rather than what became of it on the way
	}
	return wrap(err, "stdin of command %s", c.ID())
}

// sendStdin sends r in the background until stop is called, and tells how
// that ended. In RunCommand an error of r or of the sending shows to the
// command as the input's end or not at all, as in a pipe; the command's own
// exit says what it made of that.
//
// r is copied through a pipe because the HTTP transport waits for a Read that
// is under way, even after a cancellation: so stop does not depend on r.
func (c *Command) sendStdin(ctx context.Context, r io.Reader) (sent <-chan error, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err)
	}()
	unblock := context.AfterFunc(ctx, func() { pr.CloseWithError(context.Cause(ctx)) })
	result := make(chan error, 1)
	var sending sync.WaitGroup
	sending.Go(func() {
		err := c.c.call(ctx, request{
			method: http.MethodPost, path: c.path("stdin"), body: pr,
			header: http.Header{"Content-Type": {"application/octet-stream"}},
		}, nil)
		pr.CloseWithError(errors.Join(err, io.ErrClosedPipe))
		result <- err
	})
	return result, func() {
		unblock()
		cancel()
		pr.CloseWithError(io.ErrClosedPipe)
		sending.Wait()
	}
}
