package netstack

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

const (
	queryTimeout  = 5 * time.Second
	maxQueries    = 128 // of one sandbox at a time
	maxDNSConns   = 16
	dnsConnIdle   = 10 * time.Second
	maxQueryBytes = 4096 // real ones stay below 512
)

// serveDNS starts the only service that the guest can reach on the gateway.
func (s *Stack) serveDNS() error {
	addr := tcpip.FullAddress{NIC: nicID, Addr: tcpip.AddrFrom4(driver.GatewayAddr.As4()), Port: 53}
	pc, err := gonet.DialUDP(s.stack, &addr, nil, ipv4.ProtocolNumber)
	if err != nil {
		return fmt.Errorf("open DNS over UDP: %w", err)
	}
	ln, err := gonet.ListenTCP(s.stack, addr, ipv4.ProtocolNumber)
	if err != nil {
		pc.Close()
		return fmt.Errorf("open DNS over TCP: %w", err)
	}
	d := &resolver{s: s, slots: make(chan struct{}, maxQueries)}
	context.AfterFunc(s.ctx, func() {
		pc.Close()
		ln.Close()
	})
	s.goWork(func() { d.serveUDP(pc) })
	s.goWork(func() { d.serveTCP(ln) })
	return nil
}

// resolver answers the guest's DNS queries.
type resolver struct {
	s     *Stack
	slots chan struct{} // a query in hand holds one
}

// serveUDP answers datagrams. One that finds no slot is lost, as on a busy
// network; clients ask again.
func (d *resolver) serveUDP(pc *gonet.UDPConn) {
	buf := make([]byte, maxQueryBytes)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			if d.s.ctx.Err() != nil {
				return
			}
			continue
		}
		query := append([]byte(nil), buf[:n]...)
		select {
		case d.slots <- struct{}{}:
		default:
			continue
		}
		if !d.s.goWork(func() {
			defer func() { <-d.slots }()
			if answer := d.handle(query, true); answer != nil {
				_, _ = pc.WriteTo(answer, from) // lost like any datagram
			}
		}) {
			return
		}
	}
}

func (d *resolver) serveTCP(ln *gonet.TCPListener) {
	conns := make(chan struct{}, maxDNSConns)
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		select {
		case conns <- struct{}{}:
		default:
			c.Close()
			continue
		}
		if !d.s.goWork(func() {
			defer func() { <-conns }()
			defer c.Close()
			defer context.AfterFunc(d.s.ctx, func() { c.Close() })()
			d.serveConn(c)
		}) {
			c.Close()
			return
		}
	}
}

// serveConn answers the queries of one connection in order.
func (d *resolver) serveConn(c net.Conn) {
	for {
		if c.SetDeadline(time.Now().Add(dnsConnIdle)) != nil {
			return
		}
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(size[:]))
		if n > maxQueryBytes {
			return
		}
		query := make([]byte, n)
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		select {
		case d.slots <- struct{}{}:
		case <-d.s.ctx.Done():
			return
		}
		answer := d.handle(query, false)
		<-d.slots
		if answer == nil {
			return
		}
		binary.BigEndian.PutUint16(size[:], uint16(len(answer)))
		if _, err := c.Write(append(size[:], answer...)); err != nil {
			return
		}
	}
}
