package netstack

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

// upstreams are the connections to the destination of an intercepted one.
type upstreams struct {
	s *Stack
	f *flow

	mu     sync.Mutex // guards what follows
	ready  net.Conn   // dialled before, not used yet
	closed bool
	open   map[*flowConn]struct{}
}

// dial returns a connection to the very address that the guest connected to.
// It is judged anew, for the policy may have changed.
func (u *upstreams) dial(ctx context.Context) (net.Conn, error) {
	u.mu.Lock()
	ready := u.ready
	u.ready = nil
	u.mu.Unlock()
	if ready != nil {
		return ready, nil
	}
	f := u.s.flows.add(u.f.ctx, egress.TCP, u.f.dst, maxTCP)
	if f == nil {
		return nil, errTooMany
	}
	v := u.s.flows.judged(f, func() egress.Verdict {
		v := u.s.judge.Recheck(egress.TCP, u.f.dst, u.f.verdict.Resolved)
		v.Resolved = u.f.verdict.Resolved
		return v
	})
	if !v.Allowed {
		u.s.flows.remove(f)
		return nil, errors.New(v.Reason)
	}
	c, err := u.s.dialFlow(ctx, f)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		c.Close()
		return nil, net.ErrClosed
	}
	if u.open == nil {
		u.open = map[*flowConn]struct{}{}
	}
	u.open[c] = struct{}{}
	c.onClose = func() {
		u.mu.Lock()
		delete(u.open, c)
		u.mu.Unlock()
	}
	return c, nil
}

// close ends them all.
func (u *upstreams) close() {
	u.mu.Lock()
	u.closed = true
	ready, open := u.ready, u.open
	u.ready, u.open = nil, nil
	u.mu.Unlock()
	if ready != nil {
		ready.Close()
	}
	for c := range open {
		c.Close()
	}
}

// flowConn is a connection outward that is a flow of its own, so that it
// counts and ends like those of the guest.
type flowConn struct {
	net.Conn
	once    sync.Once
	remove  func()
	onClose func() // may be nil
}

// dialFlow connects to f's address. It owns f, also on error.
func (s *Stack) dialFlow(ctx context.Context, f *flow) (*flowConn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	out, err := s.dialOut(ctx, "tcp", f.dst)
	if err != nil {
		s.flows.remove(f)
		return nil, err
	}
	f.whenAborted(func() { abortConn(out) })
	return &flowConn{Conn: out, remove: func() { s.flows.remove(f) }}, nil
}

// Close implements net.Conn.
func (c *flowConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.remove()
		if c.onClose != nil {
			c.onClose()
		}
	})
	return err
}
