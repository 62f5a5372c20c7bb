package netstack

import (
	"bytes"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

// udpIdle ends a UDP session that has been silent for so long.
const udpIdle = 60 * time.Second

// handleUDP is called, one packet at a time, for a datagram that belongs to
// no session. False makes the stack answer "port unreachable".
func (s *Stack) handleUDP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	dst := local(id)
	f := s.flows.add(s.ctx, egress.UDP, dst, maxUDP)
	if f == nil {
		s.log.Log(s.ctx, s.overUDP.level(), "sandbox has too many UDP sessions", "dst", dst, "limit", maxUDP)
		return false
	}
	ok := s.openUDP(f, id, pkt)
	if !ok {
		s.flows.remove(f)
	}
	return ok
}

func (s *Stack) openUDP(f *flow, id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	v := s.flows.judged(f, func() egress.Verdict { return s.judge.Connect(egress.UDP, f.dst) })
	if !v.Allowed {
		s.log.Debug("refused datagram", "dst", f.dst, "rule", v.Rule, "reason", v.Reason)
		return false
	}
	f.meter = s.judge.Meter(egress.UDP, f.dst, v)
	out, err := s.dialOut(f.ctx, "udp", f.dst) // sends nothing, so is instant
	if err != nil {
		f.because(err.Error())
		s.log.Debug("UDP session failed", "dst", f.dst, "err", err)
		return false
	}
	var wq waiter.Queue
	ep, terr := udp.NewForwarderRequest(s.stack, id, pkt).CreateEndpoint(&wq)
	if terr != nil {
		s.log.Debug("UDP session failed", "dst", f.dst, "err", terr.String())
		out.Close()
		return false
	}
	f.whenAborted(func() {
		out.Close()
		ep.Close()
	})
	run := func() {
		defer s.flows.remove(f)
		defer f.abort()
		s.relayUDP(f, &wq, ep, out)
	}
	if !s.goWork(run) {
		f.abort()
		return false
	}
	return true
}

// relayUDP copies datagrams both ways until the session is idle or aborted.
func (s *Stack) relayUDP(f *flow, wq *waiter.Queue, ep tcpip.Endpoint, out net.Conn) {
	if out.SetReadDeadline(time.Now().Add(udpIdle)) != nil {
		return
	}
	back := make(chan struct{})
	if !s.goWork(func() {
		defer close(back)
		defer f.abort() // ends the other direction
		s.udpToGuest(f, ep, out)
	}) {
		return
	}
	s.udpToOut(f, wq, ep, out)
	f.abort()
	<-back
}

func (s *Stack) udpToGuest(f *flow, ep tcpip.Endpoint, out net.Conn) {
	for {
		err := readReady(out, func(b []byte) error {
			s.count(f, len(b), 0)
			_, _ = ep.Write(bytes.NewReader(b), tcpip.WriteOptions{}) // full: lost, as datagrams are
			return out.SetReadDeadline(time.Now().Add(udpIdle))
		})
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) { // nobody there yet
			return
		}
	}
}

func (s *Stack) udpToOut(f *flow, wq *waiter.Queue, ep tcpip.Endpoint, out net.Conn) {
	ready, events := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventErr | waiter.EventHUp)
	wq.EventRegister(&ready)
	defer wq.EventUnregister(&ready)
	for {
		moved, err := s.forward(f, ep, out)
		switch {
		case err != nil && !moved:
			return // the session is over
		case moved:
			// A failed send is a lost datagram, no more.
			if out.SetReadDeadline(time.Now().Add(udpIdle)) != nil {
				return
			}
			continue
		}
		select {
		case <-events:
		case <-f.ctx.Done():
			return
		}
	}
}
