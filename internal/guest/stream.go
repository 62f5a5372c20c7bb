package guest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// frame is what the agent sent on a stream.
type frame struct {
	kind wire.Kind
	data []byte
}

const (
	// streamBytes is what a stream may hold unread: a window, and answers.
	streamBytes = wire.Window + 64<<10
	// streamFrames bounds the frames of which those bytes consist; an
	// honest agent needs far fewer.
	streamFrames = 1 << 16
)

// stream is one open request.
type stream struct {
	c  *Conn
	id uint32

	ready chan struct{} // has a token when there is something to take

	mu    sync.Mutex
	queue []frame
	bytes int
	err   error // the session's end
}

// open makes a stream.
func (c *Conn) open() (*stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	for {
		c.next++
		if c.next != 0 && c.streams[c.next] == nil {
			break
		}
	}
	s := &stream{c: c, id: c.next, ready: make(chan struct{}, 1)}
	c.streams[s.id] = s
	return s, nil
}

func (s *stream) close() {
	s.c.mu.Lock()
	delete(s.c.streams, s.id)
	s.c.mu.Unlock()
}

// cancel ends the request on the agent's side too.
func (s *stream) cancel() {
	s.close()
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	_ = s.send(ctx, wire.KindCancel, nil)
}

func (s *stream) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// put is called by the session's reader; false: there is more than allowed.
func (s *stream) put(f frame) bool {
	s.mu.Lock()
	s.queue = append(s.queue, f)
	s.bytes += len(f.data)
	ok := s.bytes <= streamBytes && len(s.queue) <= streamFrames
	s.mu.Unlock()
	s.wake()
	return ok
}

// failed tells whether all that the stream will say is that it failed.
func (s *stream) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil || len(s.queue) > 0 && s.queue[0].kind == wire.KindErr
}

func (s *stream) end(err error) {
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	s.wake()
}

// poll takes a frame that is here already.
func (s *stream) poll() (f frame, more, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return frame{}, false, false, s.err
	}
	f = s.queue[0]
	s.queue[0] = frame{}
	s.queue = s.queue[1:]
	s.bytes -= len(f.data)
	return f, len(s.queue) > 0, true, nil
}

// recv waits for a frame; more tells whether another one is here already. A
// frame of KindErr is returned as the error that it says.
func (s *stream) recv(ctx context.Context) (f frame, more bool, err error) {
	for {
		f, more, ok, err := s.poll()
		if err != nil {
			return frame{}, false, err
		}
		if ok {
			if f.kind == wire.KindErr {
				return frame{}, false, s.failure(f.data)
			}
			return f, more, nil
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return frame{}, false, ctx.Err()
		}
	}
}

// protocol ends the session: the agent sent what has no meaning here.
func (s *stream) protocol(what string) error {
	err := fmt.Errorf("%w: %s", ErrProtocol, what)
	s.c.fail(err)
	return err
}

func (s *stream) failure(p []byte) error {
	var f wire.Failure
	if f.Decode(p) != nil {
		return s.protocol("malformed failure")
	}
	return failureError(&f)
}

// send sends one message, cut into frames where it is long.
func (s *stream) send(ctx context.Context, k wire.Kind, p []byte) error {
	var b []byte
	for len(p) > wire.MaxPayload {
		b = wire.AppendFrame(b, s.id, wire.KindMore, p[:wire.MaxPayload])
		p = p[wire.MaxPayload:]
	}
	return s.c.write(ctx, wire.AppendFrame(b, s.id, k, p))
}

// call sends a request and waits for OK.
func (c *Conn) call(ctx context.Context, k wire.Kind, p []byte) ([]byte, error) {
	ctx, stop := withTimeout(ctx)
	defer stop()
	return c.callFor(ctx, k, p)
}

// callFor is call without a time limit of its own.
func (c *Conn) callFor(ctx context.Context, k wire.Kind, p []byte) ([]byte, error) {
	if len(p) > wire.MaxRequest {
		return nil, fmt.Errorf("request of %d bytes: more than %d", len(p), wire.MaxRequest)
	}
	s, err := c.open()
	if err != nil {
		return nil, err
	}
	if err := s.send(ctx, k, p); err != nil {
		s.close()
		return nil, err
	}
	f, _, err := s.recv(ctx)
	if err != nil && ctx.Err() != nil {
		s.cancel()
		return nil, err
	}
	s.close()
	if err == nil && f.kind != wire.KindOK {
		return nil, s.protocol("answer of the wrong kind")
	}
	return f.data, err
}
