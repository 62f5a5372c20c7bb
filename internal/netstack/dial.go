package netstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// DialContext connects from the gateway to a TCP port of the guest. Its
// bytes count in Usage. Where nothing listens the error is
// syscall.ECONNREFUSED; the policy does not apply to it.
func (s *Stack) DialContext(ctx context.Context, port int) (net.Conn, error) {
	c, err := s.dialIn(ctx, port)
	if err != nil {
		return nil, err
	}
	return s.Count(c), nil
}

// DialAgent connects to the guest's agent. Its bytes do not count in Usage:
// a caller that tunnels a user's connection through one wraps it with Count.
func (s *Stack) DialAgent(ctx context.Context) (net.Conn, error) {
	return s.dialIn(ctx, driver.AgentPort)
}

// Count returns c with its bytes counted: what is written as ingress, what
// is read as egress.
func (s *Stack) Count(c net.Conn) net.Conn { return &countedConn{Conn: c, s: s} }

func (s *Stack) dialIn(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("dial sandbox: port %d is not within 1–65535", port)
	}
	if !s.enter() {
		return nil, fmt.Errorf("dial sandbox port %d: %w", port, ErrClosed)
	}
	defer s.work.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	from := tcpip.FullAddress{NIC: nicID, Addr: tcpip.AddrFrom4(driver.GatewayAddr.As4())}
	to := tcpip.FullAddress{NIC: nicID, Addr: tcpip.AddrFrom4(driver.GuestAddr.As4()), Port: uint16(port)}
	c, err := gonet.DialTCPWithBind(ctx, s.stack, from, to, ipv4.ProtocolNumber)
	switch {
	case err == nil:
		return c, nil
	case s.ctx.Err() != nil:
		err = ErrClosed
	default:
		err = errno(err)
	}
	return nil, fmt.Errorf("dial sandbox port %d: %w", port, err)
}

// errno turns the text that gonet makes of a stack's error back into the
// number that callers test for.
func errno(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) {
		return err
	}
	for text, no := range map[string]syscall.Errno{
		(&tcpip.ErrConnectionRefused{}).String():  syscall.ECONNREFUSED,
		(&tcpip.ErrConnectionReset{}).String():    syscall.ECONNRESET,
		(&tcpip.ErrTimeout{}).String():            syscall.ETIMEDOUT,
		(&tcpip.ErrHostUnreachable{}).String():    syscall.EHOSTUNREACH,
		(&tcpip.ErrNetworkUnreachable{}).String(): syscall.ENETUNREACH,
	} {
		if strings.EqualFold(op.Err.Error(), text) {
			return no
		}
	}
	return err
}

// countedConn keeps CloseWrite of the connection it wraps.
type countedConn struct {
	net.Conn
	s *Stack
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.s.egress.Add(uint64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.s.ingress.Add(uint64(n))
	return n, err
}

// CloseWrite ends the direction to the guest, where the connection can.
func (c *countedConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return errors.ErrUnsupported
}
