package guest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

const (
	// callTimeout bounds a request whose ctx has no deadline.
	callTimeout = 30 * time.Second
	// writeTimeout is how long the agent may take nothing at all before the
	// connection is given up.
	writeTimeout = 10 * time.Second
	// attemptTimeout bounds one attempt to reach an agent that may not
	// listen yet, retryEvery the pause after it.
	attemptTimeout = time.Second
	retryEvery     = 2 * time.Millisecond
)

// DialFunc connects to the agent's port.
type DialFunc func(ctx context.Context) (net.Conn, error)

// Conn is a session with a machine's agent. Safe for concurrent use. It ends
// when Close is called, the connection breaks or the agent breaks the
// protocol; after that every call returns ErrClosed.
type Conn struct {
	dial    DialFunc
	secret  [32]byte
	nc      net.Conn
	writing chan struct{} // holds one token while nobody writes
	done    chan struct{}

	mu      sync.Mutex
	streams map[uint32]*stream
	early   map[string]*stream // by command: see start
	next    uint32
	err     error // why it ended
}

// Dial connects to the agent and repeats that until it listens or ctx ends.
// The first secret that an agent is told is its secret. Dial keeps dial for
// DialPort. The Conn outlives ctx.
func Dial(ctx context.Context, dial DialFunc, secret [32]byte) (*Conn, error) {
	for {
		nc, err := greet(ctx, dial, &wire.Preface{Mode: wire.ModeSession, Secret: secret})
		if err == nil {
			return newConn(nc, dial, secret), nil
		}
		if errors.Is(err, ErrProtocol) || errors.Is(err, errSecret) {
			return nil, fmt.Errorf("connect to the agent: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to the agent: %w (last attempt: %w)", ctx.Err(), err)
		case <-time.After(retryEvery):
		}
	}
}

var errSecret = errors.New("the agent has another secret")

// greet makes one connection and sends the preface; the connection has no
// deadline afterwards.
func greet(ctx context.Context, dial DialFunc, p *wire.Preface) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	nc, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := hello(ctx, nc, p); err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

func hello(ctx context.Context, nc net.Conn, p *wire.Preface) error {
	// A deadline in the past ends the reading when ctx does.
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	if _, err := nc.Write(p.Append(nil)); err != nil {
		stop()
		return err
	}
	var b [wire.HelloSize]byte
	_, err := io.ReadFull(nc, b[:])
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	switch wire.Code(b[0]) {
	case wire.CodeOK:
		return nc.SetDeadline(time.Time{})
	case wire.CodeSecret:
		return errSecret
	case wire.CodeErrno:
		return guestErrno(uint16(b[1])<<8 | uint16(b[2]))
	case wire.CodeLimit:
		return fmt.Errorf("the agent has too many connections: %w", syscall.EMFILE)
	}
	return fmt.Errorf("%w: answer %d to the preface", ErrProtocol, b[0])
}

func newConn(nc net.Conn, dial DialFunc, secret [32]byte) *Conn {
	c := &Conn{dial: dial, secret: secret, nc: nc, writing: make(chan struct{}, 1), done: make(chan struct{}),
		streams: map[uint32]*stream{}, early: map[string]*stream{}}
	c.writing <- struct{}{}
	go c.read()
	return c
}

// Close ends the session. Commands go on, and their output is kept for the
// next session.
func (c *Conn) Close() error {
	c.fail(ErrClosed)
	return nil
}

// Done is closed when the session has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is nil until Done is closed and then tells why: ErrClosed, possibly
// wrapped, or ErrProtocol.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// fail ends the session for the first reason that is given.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	streams := c.streams
	c.streams, c.early = nil, nil
	c.mu.Unlock()
	c.nc.Close()
	close(c.done)
	for _, s := range streams {
		s.end(err)
	}
}

// read hands frames to their streams. It never waits for a stream: what one
// may have on the way is bounded, and more than that breaks the protocol.
func (c *Conn) read() {
	br := bufio.NewReaderSize(c.nc, 64<<10)
	var head [wire.HeaderSize]byte
	for {
		if _, err := io.ReadFull(br, head[:]); err != nil {
			c.fail(fmt.Errorf("%w: %w", ErrClosed, err))
			return
		}
		h, err := wire.ParseHeader(head[:])
		if err != nil || h.Kind < wire.KindOK && h.Kind != wire.KindCredit || h.Kind > wire.KindEnd {
			c.fail(fmt.Errorf("%w: frame of kind %d and %d bytes", ErrProtocol, h.Kind, h.Len))
			return
		}
		p := make([]byte, h.Len)
		if _, err := io.ReadFull(br, p); err != nil {
			c.fail(fmt.Errorf("%w: %w", ErrClosed, err))
			return
		}
		c.mu.Lock()
		s := c.streams[h.Stream]
		c.mu.Unlock()
		if s != nil && !s.put(frame{h.Kind, p}) {
			c.fail(fmt.Errorf("%w: more data than was asked for", ErrProtocol))
			return
		}
	}
}

// write sends b, which is whole frames, as one piece.
func (c *Conn) write(ctx context.Context, b []byte) error {
	select {
	case <-c.writing:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return c.Err()
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := c.nc.Write(b)
	c.writing <- struct{}{}
	if err != nil {
		c.fail(fmt.Errorf("%w: %w", ErrClosed, err))
		return c.Err()
	}
	return nil
}

// withTimeout gives a ctx without a deadline one.
func withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, callTimeout)
}

// DialPort connects to a TCP port on the guest's loopback addresses, first
// 127.0.0.1, then ::1. It returns syscall.ECONNREFUSED where nothing listens.
func (c *Conn) DialPort(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("dial guest port %d: must be 1 to 65535", port)
	}
	ctx, cancel := withTimeout(ctx)
	defer cancel()
	nc, err := c.dial(ctx)
	if err == nil {
		if err = hello(ctx, nc, &wire.Preface{Mode: wire.ModeDial, Secret: c.secret, Port: uint16(port)}); err != nil {
			nc.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("dial guest port %d: %w", port, err)
	}
	return nc, nil
}
