package guest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// The agent does not import package driver, so it has its own copies.
func TestAddressesAreTheDrivers(t *testing.T) {
	if driver.GuestAddr.As4() != wire.GuestIP || driver.GatewayAddr.As4() != wire.GatewayIP || driver.AgentPort != wire.AgentPort ||
		driver.UpperDir != "/up" || driver.NewRootDir != "/newroot" || driver.MaxLayers != 8 || driver.LayerDir(7) != "/l7" {
		t.Error("the agent's constants are not the driver's")
	}
}

func TestSecret(t *testing.T) {
	g, c := bare(t, 16)
	if err := c.Ping(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := guest.Dial(ctx(t), g.Dial, [32]byte{9}); err == nil || !strings.Contains(err.Error(), "secret") {
		t.Errorf("another secret: %v", err)
	}
	inside := func(ctx context.Context) (net.Conn, error) { return g.DialFrom(ctx, wire.GuestIP) }
	short, stop := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer stop()
	if _, err := guest.Dial(short, inside, secret); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("from inside: %v", err)
	}
	connect(t, g)
}

func TestTakeover(t *testing.T) {
	g, c := assembled(t)
	id := begin(t, c, guest.Command{Argv: []string{"sh", "-c", "echo one; sleep 0.3; echo two"}})
	c2 := connect(t, g)
	if err := c2.Takeover(ctx(t)); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if err := c.Ping(ctx(t)); !errors.Is(err, guest.ErrClosed) {
		t.Errorf("old session: %v", err)
	}
	if r := finish(t, c2, id); r.out != "one\ntwo\n" {
		t.Errorf("%+v", r)
	}
}

// TestLonelyTerminal: a terminal whose host died is hung up after a while, with
// all that runs in it; a command without one goes on.
func TestLonelyTerminal(t *testing.T) {
	t.Parallel()
	g, c := assembled(t)
	tty := openTerminal(t, c, "bash", "--norc", "-c", "trap '' HUP; sleep 7781 & wait")
	plain := begin(t, c, guest.Command{Argv: []string{"sleep", "7782"}})
	count := func(c *guest.Conn, name string) string { return shell(t, c, "pgrep -cfx '"+name+"'").out }
	for count(c, "sleep 7781") != "1\n" {
		time.Sleep(10 * time.Millisecond)
	}
	c.Close()
	<-tty.end
	c2 := connect(t, g)
	for count(c2, "sleep 7781") != "0\n" {
		if t.Context().Err() != nil {
			t.Fatal("it goes on for ever")
		}
		time.Sleep(500 * time.Millisecond)
	}
	if got := count(c2, "sleep 7782"); got != "1\n" {
		t.Errorf("the command without a terminal: %q", got)
	}
	if err := c2.Signal(ctx(t), plain, 9, true); err != nil {
		t.Error(err)
	}
}

func TestDialPort(t *testing.T) {
	g, c := assembled(t)
	if _, err := c.DialPort(ctx(t), 8099); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nothing listens: %v", err)
	}
	if _, err := c.DialPort(ctx(t), 0); err == nil {
		t.Error("port 0")
	}
	for _, addr := range []string{"127.0.0.1:8080", "[::1]:8081"} {
		l := g.Listen(t, addr)
		go echo(l)
		_, port, _ := net.SplitHostPort(addr)
		n := 8080
		if port == "8081" {
			n = 8081
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				roundTrip(t, c, n)
			}()
		}
		wg.Wait()
	}
}

func echo(l net.Listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer nc.Close()
			_, _ = io.Copy(nc, nc)
			_, _ = io.WriteString(nc, "bye")
		}()
	}
}

// roundTrip sends some megabytes, closes its half, and expects them back.
func roundTrip(t *testing.T, c *guest.Conn, port int) {
	nc, err := c.DialPort(ctx(t), port)
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	data := bytes.Repeat([]byte("0123456789"), 300_000)
	go func() {
		_, _ = nc.Write(data)
		_ = nc.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(nc)
	if err != nil || !bytes.Equal(got, append(data, "bye"...)) {
		t.Errorf("port %d: %d bytes back, %v", port, len(got), err)
	}
}

// fake is an agent that says what a test tells it to.
func fake(t *testing.T, behave func(nc net.Conn)) *guest.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		_, _ = io.ReadFull(nc, make([]byte, wire.PrefaceSize))
		_, _ = nc.Write(make([]byte, wire.HelloSize))
		behave(nc)
	}()
	c, err := guest.Dial(ctx(t), func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}, secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestSilentAgent(t *testing.T) {
	c := fake(t, func(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) })
	short, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	if err := c.Ping(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ping: %v", err)
	}
	short, stop = context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	if _, _, err := c.ReadFile(short, "/x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
}

func TestAgentThatTalksNonsense(t *testing.T) {
	long := make([]byte, wire.MaxPayload)
	for name, say := range map[string]func(stream uint32) []byte{
		"request": func(s uint32) []byte { return wire.AppendFrame(nil, s, wire.KindStart, nil) },
		"unknown": func(s uint32) []byte { return wire.AppendFrame(nil, s, 200, nil) },
		"giant": func(s uint32) []byte {
			return wire.AppendHeader(nil, wire.Header{Stream: s, Kind: wire.KindOK, Len: 1 << 30})
		},
		"wrong kind":  func(s uint32) []byte { return wire.AppendFrame(nil, s, wire.KindEnd, nil) },
		"bad failure": func(s uint32) []byte { return wire.AppendFrame(nil, s, wire.KindErr, []byte{1}) },
		"flood":       func(s uint32) []byte { return bytes.Repeat(wire.AppendFrame(nil, s, wire.KindData, long), 64) },
	} {
		c := fake(t, func(nc net.Conn) {
			head := make([]byte, wire.HeaderSize)
			_, _ = io.ReadFull(nc, head)
			_, _ = nc.Write(say(wire.U32(head)))
			_, _ = io.Copy(io.Discard, nc)
		})
		if err := c.Ping(ctx(t)); !errors.Is(err, guest.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
		<-c.Done()
		if err := c.Ping(ctx(t)); !errors.Is(err, guest.ErrProtocol) {
			t.Errorf("%s, later: %v", name, err)
		}
	}
}

func TestLogWithGap(t *testing.T) {
	c := fake(t, func(nc net.Conn) {
		head := make([]byte, wire.HeaderSize)
		_, _ = io.ReadFull(nc, head)
		_, _ = nc.Write(wire.AppendFrame(nil, wire.U32(head), wire.KindData, append(wire.AppendU64(nil, 7), 'x')))
		_, _ = io.Copy(io.Discard, nc)
	})
	if err := c.Attach(ctx(t), "x", 0, func(int64, []byte) error { return nil }); !errors.Is(err, guest.ErrProtocol) {
		t.Errorf("%v", err)
	}
}

func TestAgentGoesAway(t *testing.T) {
	c := fake(t, func(nc net.Conn) { _, _ = io.ReadFull(nc, make([]byte, wire.HeaderSize)) })
	if err := c.Ping(ctx(t)); !errors.Is(err, guest.ErrClosed) {
		t.Errorf("%v", err)
	}
	if c.Err() == nil {
		t.Error("no reason")
	}
}
