package guest_test

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

func TestMain(m *testing.M) { os.Exit(guesttest.Main(m)) }

var secret = [32]byte{1, 2, 3}

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// bare is an agent whose root is not assembled, and a session with it.
func bare(t testing.TB, upperMiB int) (*guesttest.Guest, *guest.Conn) {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	g := guesttest.Start(t, upperMiB)
	return g, connect(t, g)
}

func connect(t testing.TB, g *guesttest.Guest) *guest.Conn {
	t.Helper()
	c, err := guest.Dial(ctx(t), g.Dial, secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// assembled is an agent that can run commands.
func assembled(t testing.TB) (*guesttest.Guest, *guest.Conn) {
	t.Helper()
	g, c := bare(t, 256)
	err := c.Assemble(ctx(t), guest.Assembly{Layers: 2, Hostname: "box",
		Owner: guest.User{UID: 1000, GID: 1000}, Dirs: []string{"/vercel/sandbox"},
		Files: map[string][]byte{"/etc/resolv.conf": []byte("nameserver 10.88.0.1\n")}})
	if err != nil {
		t.Fatal(err)
	}
	return g, c
}

// ctx is a context that ends before the test's own deadline would.
func ctx(t testing.TB) context.Context {
	t.Helper()
	c, stop := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(stop)
	return c
}

type result struct {
	out, err string
	code     int
	took     time.Duration
}

var serial = make(chan int, 1)

func init() { serial <- 0 }

func newID() string {
	n := <-serial
	serial <- n + 1
	return "cmd_" + string(rune('a'+n%26)) + time.Now().Format("150405.000000000")
}

// run runs a command to its end.
func run(t testing.TB, c *guest.Conn, cmd guest.Command) result {
	t.Helper()
	start := time.Now()
	id := begin(t, c, cmd)
	r := finish(t, c, id)
	r.took = time.Since(start)
	return r
}

func shell(t testing.TB, c *guest.Conn, script string) result {
	t.Helper()
	return run(t, c, guest.Command{Argv: []string{"bash", "-c", script}})
}

// begin starts a command; what it does not say is filled in.
func begin(t testing.TB, c *guest.Conn, cmd guest.Command) string {
	t.Helper()
	if cmd.ID == "" {
		cmd.ID = newID()
	}
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	if cmd.Env == nil {
		cmd.Env = []string{searchPath}
	}
	if err := c.StartCommand(ctx(t), cmd); err != nil {
		t.Fatal(err)
	}
	return cmd.ID
}

// finish reads a command's log to its end.
func finish(t testing.TB, c *guest.Conn, id string) result {
	t.Helper()
	l := newLog()
	if err := c.Attach(ctx(t), id, 0, l.sink); err != nil {
		t.Fatal(err)
	}
	return l.result(t)
}

// log is a command's log as a host keeps it.
type log struct {
	dec      wire.Decoder
	out, err bytes.Buffer
	code     int
	size     int64
}

func newLog() *log { return &log{code: -1} }

func (l *log) sink(off int64, b []byte) error {
	l.size += int64(len(b))
	return l.dec.Feed(b, func(r wire.Record) error {
		switch r.Kind {
		case wire.RecordStdout:
			l.out.Write(r.Data)
		case wire.RecordStderr:
			l.err.Write(r.Data)
		case wire.RecordExit:
			l.code = int(r.Code)
		}
		return nil
	})
}

func (l *log) result(t testing.TB) result {
	t.Helper()
	if !l.dec.Done() || l.dec.Partial() != 0 {
		t.Fatalf("log ends without its exit record, %d bytes over", l.dec.Partial())
	}
	return result{out: l.out.String(), err: l.err.String(), code: l.code}
}
