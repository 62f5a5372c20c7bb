package server

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/api"
)

const (
	// ndjson is compared by the client as a whole: no charset may follow.
	ndjson = "application/x-ndjson"
	// maxItem bounds the data of one item of output in bytes.
	maxItem = 64 << 10
	// keepAlive is how often a silent answer sends a byte that means nothing,
	// so that proxies do not take it for dead.
	keepAlive = 20 * time.Second
)

// streamContext ends with the request and with the server. The cancel
// function must be called before the handler returns.
func (c *call) streamContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(c.r.Context())
	ended := make(chan struct{})
	stop := context.AfterFunc(c.s.life, func() {
		defer close(ended)
		cancel(errShutdown)
		// A client that does not read must not hold up the shutdown.
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(drainTime))
	})
	return ctx, sync.OnceFunc(func() {
		if !stop() {
			<-ended // it must not touch the connection after the handler
		}
		cancel(context.Canceled)
	})
}

// errShutdown ends the streams of a server that shuts down.
var errShutdown = api.Errorf(api.CodeSandboxStopping, "the server is shutting down; ask again when it is back")

// stream writes JSON lines, each whole and at once. Not safe for concurrent use.
type stream struct {
	c    *call
	ctl  *http.ResponseController
	line []byte
	raw  bool // output goes out as base64
}

func (c *call) newStream() *stream {
	c.w.Header().Set("Content-Type", ndjson)
	c.noBuffering()
	return &stream{c: c, ctl: http.NewResponseController(c.w)}
}

// noBuffering asks proxies to pass on what comes when it comes.
func (c *call) noBuffering() {
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.Header().Set("X-Accel-Buffering", "no")
}

// begin sends the headers, before there is anything to say.
func (s *stream) begin() error {
	s.c.w.WriteHeader(http.StatusOK)
	return s.ctl.Flush()
}

func (s *stream) send(v any) error {
	line, err := appendJSON(s.line[:0], v)
	if err != nil {
		return err
	}
	s.line = line
	return s.flush(line)
}

func (s *stream) flush(p []byte) error {
	if _, err := s.c.w.Write(p); err != nil {
		return err
	}
	return s.ctl.Flush()
}

// sendLog sends a piece of output as items of bounded size.
func (s *stream) sendLog(name, data string) error {
	for len(data) > 0 {
		n := s.itemLength(data)
		if s.raw {
			s.line = appendRawLog(s.line[:0], name, data[:n])
		} else {
			s.line = appendLog(s.line[:0], name, data[:n])
		}
		if err := s.flush(s.line); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// itemLength is at most maxItem and splits no character of text.
func (s *stream) itemLength(data string) int {
	if len(data) <= maxItem {
		return len(data)
	}
	if s.raw {
		return maxItem
	}
	n := maxItem
	for n > maxItem-utf8.UTFMax && !utf8.RuneStart(data[n]) {
		n--
	}
	return n
}

// end closes a stream that cannot go on with an item that says why.
func (s *stream) end(err error) error {
	return s.send(api.LogErrorLine{Stream: api.StreamError, Data: *s.c.clientError(err)})
}

// logItem is what a LogReader returned.
type logItem struct {
	stream, data string
	err          error
}

// follow sends all that r has until its end, which is io.EOF, or an error.
// One goroutine reads ahead by one piece, so that silence can be noticed.
func (s *stream) follow(ctx context.Context, r LogReader) error {
	if s.raw {
		r.Raw()
	}
	ctx, cancel := context.WithCancel(ctx)
	items := make(chan logItem)
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	go func() {
		defer close(done)
		readLog(ctx, r, items)
	}()
	idle := time.NewTicker(keepAlive)
	defer idle.Stop()
	for {
		select {
		case item := <-items:
			if item.err != nil {
				return item.err
			}
			if err := s.sendLog(item.stream, item.data); err != nil {
				return err
			}
			idle.Reset(keepAlive)
		case <-idle.C:
			if err := s.flush([]byte("\n")); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func readLog(ctx context.Context, r LogReader, items chan<- logItem) {
	for {
		var item logItem
		item.stream, item.data, item.err = r.Next(ctx)
		select {
		case items <- item:
		case <-ctx.Done():
			return
		}
		if item.err != nil {
			return
		}
	}
}

// waitJSON answers with what wait returns, however long that takes: the
// headers go out after patience, then a space now and then, which JSON allows
// before a value. An error that comes later than the headers is the answer's
// body under status 200.
func (c *call) waitJSON(wait func(context.Context) (any, error)) error {
	ctx, cancel := c.streamContext()
	defer cancel()
	type result struct {
		v   any
		err error
	}
	results := make(chan result, 1)
	go func() {
		v, err := wait(ctx)
		results <- result{v, err}
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case r := <-results:
			return c.endWait(r.v, waitError(ctx, r.err))
		case <-timer.C:
			if err := c.keepWaiting(); err != nil {
				cancel()
				<-results
				return err
			}
			timer.Reset(keepAlive)
		}
	}
}

// patience is how long an answer may take before its headers go out without
// it: most waits are over by then and can still choose their status.
const patience = 250 * time.Millisecond

func waitError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (c *call) keepWaiting() error {
	text := " "
	if !c.w.wrote {
		c.w.Header().Set("Content-Type", "application/json")
		c.noBuffering()
		c.w.WriteHeader(http.StatusOK)
		text = ""
	}
	if _, err := c.w.Write([]byte(text)); err != nil {
		return err
	}
	return http.NewResponseController(c.w).Flush()
}

func (c *call) endWait(v any, err error) error {
	if !c.w.wrote {
		return c.ok(v, err)
	}
	if err != nil {
		v = api.ErrorResponse{Error: *c.clientError(err)}
	}
	body, err := appendJSON(nil, v)
	if err != nil {
		return err
	}
	_, err = c.w.Write(body)
	return err
}

// setLength announces an answer's length.
func (c *call) setLength(n int64) {
	c.w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
}
