package netstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

const (
	dialTimeout = 30 * time.Second
	// handshakeTimeout bounds the wait for the guest's last handshake packet;
	// its kernel sends that at once.
	handshakeTimeout = 10 * time.Second
	keepAlive        = 60 * time.Second
)

// handleTCP decides on one connection attempt of the guest, in a goroutine
// of its own. The guest's handshake is completed only after the outside's,
// so that it sees a refused or unreachable peer as such.
func (s *Stack) handleTCP(r *tcp.ForwarderRequest) {
	if !s.enter() {
		r.Complete(true)
		return
	}
	defer s.work.Done()
	dst := local(r.ID())
	f := s.flows.add(s.ctx, egress.TCP, dst, maxTCP)
	if f == nil {
		s.log.Warn("sandbox has too many connections", "dst", dst, "limit", maxTCP)
		r.Complete(true)
		return
	}
	defer s.flows.remove(f)
	v := s.flows.judged(f, func() egress.Verdict { return s.judge.Connect(egress.TCP, dst) })
	if !v.Allowed {
		s.log.Debug("refused connection", "dst", dst, "rule", v.Rule, "reason", v.Reason)
		r.Complete(true)
		return
	}
	out, err := s.dialOut(f.ctx, "tcp", dst)
	if err != nil {
		s.log.Debug("connection failed", "dst", dst, "err", err)
		r.Complete(true)
		return
	}
	defer out.Close()
	in, err := s.accept(r, f)
	if err != nil {
		s.log.Debug("guest gave up its connection", "dst", dst, "err", err)
		return
	}
	s.splice(f, in, out)
}

// accept completes the guest's handshake.
func (s *Stack) accept(r *tcp.ForwarderRequest, f *flow) (*guestConn, error) {
	var wq waiter.Queue
	// CreateEndpoint sleeps until the queue says that the endpoint is
	// writable; saying so earlier makes it look, and give up.
	giveUp := func() { wq.Notify(waiter.WritableEvents) }
	f.whenAborted(giveUp)
	timer := time.AfterFunc(handshakeTimeout, giveUp)
	ep, terr := r.CreateEndpoint(&wq)
	timer.Stop()
	if terr != nil {
		r.Complete(true)
		return nil, fmt.Errorf("complete handshake: %s", terr)
	}
	r.Complete(false)
	if n := bufferSize(s.flows.count(egress.TCP)); n != 0 {
		ep.SocketOptions().SetReceiveBufferSize(n, true)
		ep.SocketOptions().SetSendBufferSize(n, true)
	}
	ep.SocketOptions().SetKeepAlive(true)
	idle := tcpip.KeepaliveIdleOption(keepAlive)
	_ = ep.SetSockOpt(&idle) // without it the default, two hours, holds
	return newGuestConn(&wq, ep), nil
}

// dialOut opens a connection of the host to the judged address.
func (s *Stack) dialOut(ctx context.Context, network string, dst netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return s.cfg.Dial(ctx, network, dst)
}

// hostDial is the plain Config.Dial. The address is a literal, so nothing is
// looked up again; Control checks that the socket goes nowhere else.
func hostDial(ctx context.Context, network string, dst netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{
		KeepAlive: keepAlive,
		Control: func(_, address string, _ syscall.RawConn) error {
			if got, err := netip.ParseAddrPort(address); err != nil || got != dst {
				return fmt.Errorf("about to connect to %s in place of %s", address, dst)
			}
			return nil
		},
	}
	return d.DialContext(ctx, network, dst.String())
}

// local is the address that the guest wanted to reach.
func local(id stack.TransportEndpointID) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(id.LocalAddress.As4()), id.LocalPort)
}

// errAborted ends the copying of a flow that was reset.
var errAborted = errors.New("connection was reset by the network policy")
