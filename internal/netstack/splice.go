package netstack

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/waiter"
)

// halfOpenIdle ends a connection of which one direction is closed when the
// other has been silent for so long.
const halfOpenIdle = 30 * time.Minute

// copyBufs lends the buffers of the copying goroutines. They are held only
// while there are bytes to move: thousands of idle connections cost none.
var copyBufs = sync.Pool{New: func() any { return new([128 << 10]byte) }}

// guestConn is the guest's side of a connection.
type guestConn struct {
	*gonet.TCPConn
	wq *waiter.Queue
	ep tcpip.Endpoint
}

func newGuestConn(wq *waiter.Queue, ep tcpip.Endpoint) *guestConn {
	return &guestConn{TCPConn: gonet.NewTCPConn(wq, ep), wq: wq, ep: ep}
}

// splice copies both ways until both directions have ended or one has failed;
// or until the guest's first bytes show a connection that is to be
// intercepted: then it is left as it is, held being what was read of it.
func (s *Stack) splice(f *flow, in *guestConn, out net.Conn) (held []byte, taken bool) {
	defer func() {
		if !taken {
			in.Close()
		}
	}()
	reset := func() {
		in.ep.Abort()
		abortConn(out)
	}
	f.whenAborted(reset)
	var half atomic.Bool
	ended := make(chan error, 2)
	if !s.goWork(func() { ended <- s.outToGuest(f, in, out, &half) }) {
		reset()
		return nil, false
	}
	g := s.gate(f, out)
	err := s.guestToOut(f, in, out, g, &half)
	if errors.Is(err, errTaken) {
		if err = interrupt(out, ended); err == nil {
			return g.held, true
		}
	}
	ended <- err
	for range 2 {
		if err := <-ended; err != nil {
			f.because(err.Error())
			s.log.Debug("connection ended", "dst", f.dst, "err", err)
			reset() // a reset or failure on one side is one for the other
		}
	}
	return nil, false
}

// interrupt ends the copying from out, of which ended tells, and leaves out
// usable. On an error the copying has ended by itself, and ended still tells.
func interrupt(out net.Conn, ended chan error) error {
	if err := out.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return err
	}
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		ended <- err
		return errors.New("the destination ended the connection before the guest said anything")
	}
	return out.SetReadDeadline(time.Time{})
}

func (s *Stack) guestToOut(f *flow, in *guestConn, out net.Conn, g *gate, half *atomic.Bool) error {
	ready, events := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventErr | waiter.EventHUp)
	in.wq.EventRegister(&ready)
	defer in.wq.EventUnregister(&ready)
	for {
		moved, err := s.forward(f, in.ep, g)
		switch {
		case errors.Is(err, io.EOF):
			if err := g.giveUp(); err != nil {
				return err
			}
			half.Store(true)
			return closeWrite(out)
		case err != nil:
			return err
		case moved:
			continue
		case half.Load() && !g.waiting():
			select {
			case <-events:
			case <-time.After(halfOpenIdle):
				return errors.New("idle after the peer closed its side")
			}
		case g.waiting():
			select {
			case <-events:
			case <-time.After(partialWait):
				if err := g.giveUp(); err != nil {
					return err
				}
			}
		default:
			<-events
		}
	}
}

// partialWait is how long half a first line is held for the rest of it.
const partialWait = time.Second

// gate returns where the guest's bytes go: straight out, or past the look at
// what they are.
func (s *Stack) gate(f *flow, out net.Conn) *gate {
	_, raw := s.flows.verdictOf(f)
	return &gate{out: out, port: f.dst.Port(), open: raw, decide: func(what speech) error { return s.decide(f, what) }}
}

// count adds bytes into and out of the sandbox to all that counts them.
func (s *Stack) count(f *flow, in, out int) {
	s.ingress.Add(uint64(in))
	s.egress.Add(uint64(out))
	f.meter.Count(in, out)
}

// forward moves what the guest has sent; false when that is nothing yet.
func (s *Stack) forward(f *flow, ep tcpip.Endpoint, w io.Writer) (bool, error) {
	buf := copyBufs.Get().(*[128 << 10]byte)
	defer copyBufs.Put(buf)
	dst := tcpip.SliceWriter(buf[:])
	res, terr := ep.Read(&dst, tcpip.ReadOptions{})
	switch terr.(type) {
	case nil:
	case *tcpip.ErrWouldBlock:
		return false, nil
	case *tcpip.ErrClosedForReceive:
		return false, io.EOF
	default:
		return false, fmt.Errorf("read from guest: %s", terr)
	}
	s.count(f, 0, res.Count)
	_, err := w.Write(buf[:res.Count])
	return true, err
}

func (s *Stack) outToGuest(f *flow, in *guestConn, out net.Conn, half *atomic.Bool) error {
	for {
		if half.Load() {
			if err := out.SetReadDeadline(time.Now().Add(halfOpenIdle)); err != nil {
				return err
			}
		}
		err := readReady(out, func(b []byte) error {
			s.count(f, len(b), 0)
			_, err := in.Write(b)
			return err
		})
		switch {
		case errors.Is(err, io.EOF):
			half.Store(true)
			return in.CloseWrite()
		case err != nil:
			return err
		}
	}
}

// readReady waits until c has something, borrows a buffer, reads once and
// hands over what came.
func readReady(c net.Conn, use func([]byte) error) error {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return readPlain(c, use)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	var buf *[128 << 10]byte
	var n int
	var rerr error
	if err := raw.Read(func(fd uintptr) bool {
		if buf == nil {
			buf = copyBufs.Get().(*[128 << 10]byte)
		}
		for {
			n, rerr = unix.Read(int(fd), buf[:])
			if !errors.Is(rerr, unix.EINTR) {
				break
			}
		}
		if errors.Is(rerr, unix.EAGAIN) {
			copyBufs.Put(buf)
			buf = nil
			return false
		}
		return true
	}); err != nil {
		return err
	}
	defer copyBufs.Put(buf)
	switch {
	case rerr != nil:
		return rerr
	case n == 0 && c.LocalAddr().Network() == "tcp":
		return io.EOF
	}
	return use(buf[:n])
}

func readPlain(c net.Conn, use func([]byte) error) error {
	buf := make([]byte, 32<<10)
	n, err := c.Read(buf)
	if n > 0 {
		if err := use(buf[:n]); err != nil {
			return err
		}
	}
	return err
}

func closeWrite(c net.Conn) error {
	if cw, ok := c.(interface{ CloseWrite() error }); ok {
		// The peer may have gone meanwhile: then there is nothing to tell it.
		if err := cw.CloseWrite(); err != nil && !errors.Is(err, unix.ENOTCONN) {
			return err
		}
		return nil
	}
	return c.Close()
}

// abortConn closes c so that its peer sees a reset.
func abortConn(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // best effort: without it the peer sees an end
	}
	c.Close()
}
