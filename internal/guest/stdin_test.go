package guest_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest"
)

func TestStdin(t *testing.T) {
	_, c := assembled(t)
	if r := run(t, c, guest.Command{Argv: []string{"cat"}}); r.out != "" || r.code != 0 {
		t.Errorf("without stdin: %+v", r)
	}
	id := begin(t, c, guest.Command{Argv: []string{"sha256sum"}, Stdin: true})
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if err := c.WriteStdin(ctx(t), id, data); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseStdin(ctx(t), id); err != nil {
		t.Fatal(err)
	}
	if r := finish(t, c, id); !strings.HasPrefix(r.out, "6ac5a1c6b3ad2f0d") && len(r.out) != 68 {
		t.Errorf("%+v", r)
	}
	if err := c.WriteStdin(ctx(t), id, []byte("x")); !errors.Is(err, guest.ErrFinished) {
		t.Errorf("after the end: %v", err)
	}
	quiet := begin(t, c, guest.Command{Argv: []string{"sleep", "60"}})
	if err := c.WriteStdin(ctx(t), quiet, []byte("x")); err == nil || !strings.Contains(err.Error(), "without stdin") {
		t.Errorf("no stdin: %v", err)
	}
	if err := c.Signal(ctx(t), quiet, 9, true); err != nil {
		t.Error(err)
	}
}

// A command that does not read blocks its writer and nobody else.
func TestStdinBackpressure(t *testing.T) {
	_, c := assembled(t)
	id := begin(t, c, guest.Command{Argv: []string{"bash", "-c", "sleep 0.5; wc -c"}, Stdin: true})
	short, stop := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer stop()
	if err := c.WriteStdin(short, id, make([]byte, 1<<20)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("write to one that does not read: %v", err)
	}
	if r := shell(t, c, "echo other"); r.out != "other\n" {
		t.Errorf("%+v", r)
	}
	if err := c.WriteStdin(ctx(t), id, make([]byte, 1<<20)); err != nil {
		t.Error(err)
	}
	if err := c.CloseStdin(ctx(t), id); err != nil {
		t.Error(err)
	}
	if r := finish(t, c, id); r.code != 0 || len(strings.TrimSpace(r.out)) < 7 {
		t.Errorf("%+v", r)
	}
	id = begin(t, c, guest.Command{Argv: []string{"sh", "-c", "exec <&-; sleep 60"}, Stdin: true})
	var err error
	for deadline := time.Now().Add(5 * time.Second); err == nil && time.Now().Before(deadline); {
		err = c.WriteStdin(ctx(t), id, []byte("x"))
	}
	if !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a command that closed its stdin: %v", err)
	}
	if err := c.Signal(ctx(t), id, 9, true); err != nil {
		t.Error(err)
	}
}

// terminal is a command with a terminal whose output is collected.
type terminal struct {
	t   *testing.T
	c   *guest.Conn
	id  string
	got chan []byte
	end chan error
	log *log
	all string
}

func openTerminal(t *testing.T, c *guest.Conn, argv ...string) *terminal {
	t.Helper()
	tt := &terminal{t: t, c: c, got: make(chan []byte, 1<<16), end: make(chan error, 1), log: newLog()}
	tt.id = begin(t, c, guest.Command{Argv: argv, TTY: &guest.Winsize{Rows: 24, Cols: 80}, Env: []string{searchPath, "TERM=dumb", "PS1=$ "}})
	go func() {
		tt.end <- c.Attach(ctx(t), tt.id, 0, func(off int64, b []byte) error {
			err := tt.log.sink(off, b)
			tt.got <- append([]byte(nil), tt.log.out.Bytes()...)
			tt.log.out.Reset()
			return err
		})
	}()
	return tt
}

func (tt *terminal) send(s string) {
	tt.t.Helper()
	if err := tt.c.WriteStdin(ctx(tt.t), tt.id, []byte(s)); err != nil {
		tt.t.Fatal(err)
	}
}

func (tt *terminal) expect(s string) {
	tt.t.Helper()
	timeout := time.After(15 * time.Second)
	for !strings.Contains(tt.all, s) {
		select {
		case b := <-tt.got:
			tt.all += string(b)
		case <-timeout:
			tail := tt.all[max(0, len(tt.all)-500):]
			tt.t.Fatalf("the terminal does not show %q: …%q", s, tail)
		}
	}
	tt.all = tt.all[strings.Index(tt.all, s)+len(s):]
}

func (tt *terminal) wait() int {
	tt.t.Helper()
	if err := <-tt.end; err != nil {
		tt.t.Fatal(err)
	}
	return tt.log.code
}

func TestTerminal(t *testing.T) {
	_, c := assembled(t)
	tt := openTerminal(t, c, "bash", "--norc", "-i")
	tt.expect("$ ")
	tt.send("tty; stty size\n")
	tt.expect("/dev/pts/")
	tt.expect("24 80")
	if err := c.Resize(ctx(t), tt.id, guest.Winsize{Rows: 33, Cols: 111}); err != nil {
		t.Fatal(err)
	}
	tt.send("stty size\n")
	tt.expect("33 111")
	tt.send("sleep 100\n")
	tt.expect("sleep 100\r\n")
	time.Sleep(100 * time.Millisecond) // until the sleep is in front
	tt.send("\x03")
	tt.expect("$ ")
	tt.send("echo rc=$?\n")
	tt.expect("rc=130")
	tt.send("stty -echo; seq 1 200000 | tail -n 3; seq 1 200000\n")
	tt.expect("\r\n199999\r\n200000\r\n")
	tt.send("echo done\n")
	tt.expect("\r\n199999\r\n200000\r\n")
	tt.expect("done")
	tt.send("\x04")
	if code := tt.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// All that was printed before the end arrives.
func TestTerminalDrains(t *testing.T) {
	_, c := assembled(t)
	for range 10 {
		tt := openTerminal(t, c, "sh", "-c", "seq 1 20000; exit 5")
		if code := tt.wait(); code != 5 {
			t.Fatalf("exit code %d", code)
		}
		tt.expect("\r\n20000\r\n")
	}
}

func TestTerminalHangup(t *testing.T) {
	_, c := assembled(t)
	tt := openTerminal(t, c, "bash", "--norc", "-i")
	tt.send("sleep 7771 &\nsleep 7772\n")
	waitSleeps(t, c, "2")
	if err := c.Signal(ctx(t), tt.id, 1, false); err != nil {
		t.Fatal(err)
	}
	if code := tt.wait(); code != 129 {
		t.Errorf("exit code %d", code)
	}
	waitSleeps(t, c, "0")
	if err := c.Resize(ctx(t), tt.id, guest.Winsize{Rows: 1, Cols: 1}); !errors.Is(err, guest.ErrFinished) {
		t.Errorf("resize after the end: %v", err)
	}
	tt = openTerminal(t, c, "cat")
	tt.send("line\n")
	tt.expect("line")
	if err := c.CloseStdin(ctx(t), tt.id); err != nil {
		t.Fatal(err)
	}
	if code := tt.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	tt = openTerminal(t, c, "no-such-command")
	if code := tt.wait(); code != 127 {
		t.Errorf("exit code %d", code)
	}
	tt.expect("no-such-command: command not found\r\n")
}
