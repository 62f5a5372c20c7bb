package guest_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest"
)

func TestExitCodes(t *testing.T) {
	_, c := assembled(t)
	for script, want := range map[string]int{
		"exit 0": 0, "exit 5": 5, "exit 300": 44, "false": 1,
		"kill -9 $$": 137, "kill -15 $$": 143, "kill -SEGV $$": 139, "ulimit -c 0; kill -ABRT $$": 134,
	} {
		if r := shell(t, c, script); r.code != want {
			t.Errorf("%q: exit code %d, want %d", script, r.code, want)
		}
	}
}

func TestOutputIsExact(t *testing.T) {
	_, c := assembled(t)
	r := shell(t, c, "echo out; echo err >&2")
	if r.out != "out\n" || r.err != "err\n" {
		t.Errorf("streams: %+v", r)
	}
	r = run(t, c, guest.Command{Argv: []string{"printf", `a\n\0\nb\n\377`}})
	if r.out != "a\n\x00\nb\n\xff" {
		t.Errorf("bytes: %q", r.out)
	}
	r = run(t, c, guest.Command{Argv: []string{"head", "-c", "3000000", "/dev/zero"}})
	if len(r.out) != 3000000 {
		t.Errorf("one burst: %d bytes", len(r.out))
	}
	r = run(t, c, guest.Command{Argv: []string{"seq", "1", "2000000"}})
	const want = "d2d7c0abc3eb76d91b0b5a2702e92a9f2908269c9c1b3604bdfe2521c71d6274"
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(r.out))); sum != want {
		t.Errorf("seq: %d bytes, sha256 %s", len(r.out), sum)
	}
	r = run(t, c, guest.Command{Argv: []string{"true"}})
	if r.out != "" || r.err != "" || r.code != 0 {
		t.Errorf("true: %+v", r)
	}
}

func TestNotExecutable(t *testing.T) {
	_, c := assembled(t)
	shell(t, c, `echo text > /tmp/plain; chmod 644 /tmp/plain
		printf '#!/no/such/interp\n' > /tmp/badinterp; chmod 755 /tmp/badinterp
		echo 'echo from sh "$@"' > /tmp/noexec; chmod 755 /tmp/noexec
		mkdir -p /tmp/path/tool /tmp/path2 /tmp/closed; printf '#!/bin/sh\necho tool\n' > /tmp/path2/tool; chmod 755 /tmp/path2/tool
		echo x > /tmp/path/flat; chmod 644 /tmp/path/flat; chmod 700 /tmp/closed`)
	user := guest.User{UID: 1000, GID: 1000}
	for _, tt := range []struct {
		argv []string
		path string
		user guest.User
		code int
		out  string // in stdout
		err  string // in stderr
	}{
		{argv: []string{"definitely-not-a-command"}, code: 127, err: "definitely-not-a-command: command not found"},
		{argv: []string{""}, code: 127, err: "command not found"},
		{argv: []string{"/no/such"}, code: 127, err: "/no/such: no such file"},
		{argv: []string{"/tmp/plain"}, code: 126, err: "/tmp/plain: permission denied"},
		{argv: []string{"/tmp/badinterp"}, code: 127, err: "/tmp/badinterp: bad interpreter"},
		{argv: []string{"/tmp"}, code: 126, err: "/tmp: is a directory"},
		{argv: []string{"/etc/passwd/x"}, code: 126, err: "/etc/passwd/x: not a directory"},
		{argv: []string{"/tmp/noexec", "a b"}, code: 0, out: "from sh a b\n"},
		{argv: []string{"tool"}, path: "/tmp/path:/tmp/path2", code: 0, out: "tool\n"},
		{argv: []string{"flat"}, path: "/tmp/path:/tmp/path2", code: 126, err: "flat: permission denied"},
		{argv: []string{"path"}, path: "/tmp", code: 127, err: "path: command not found"},
		{argv: []string{"missing"}, path: "/tmp/closed:/bin", user: user, code: 127, err: "missing: command not found"},
		{argv: []string{strings.Repeat("n", 300)}, code: 126, err: "file name too long"},
	} {
		cmd := guest.Command{Argv: tt.argv, User: tt.user}
		if tt.path != "" {
			cmd.Env = []string{"PATH=" + tt.path}
		}
		r := run(t, c, cmd)
		if r.code != tt.code || !strings.Contains(r.out, tt.out) || !strings.Contains(r.err, tt.err) {
			t.Errorf("%q: %+v, want %d %q %q", tt.argv, r, tt.code, tt.out, tt.err)
		}
	}
}

func TestDir(t *testing.T) {
	_, c := assembled(t)
	shell(t, c, "mkdir /tmp/closed; chmod 700 /tmp/closed; echo > /tmp/file")
	user := guest.User{UID: 1000, GID: 1000}
	if r := run(t, c, guest.Command{Argv: []string{"pwd"}, Dir: "/vercel/sandbox", User: user}); r.out != "/vercel/sandbox\n" {
		t.Errorf("pwd: %+v", r)
	}
	for _, tt := range []struct {
		dir  string
		user guest.User
		text string
	}{
		{"/no/such/dir", guest.User{}, "no such file"},
		{"/tmp/file", guest.User{}, "not a directory"},
		{"/tmp/closed", user, "permission denied"},
	} {
		err := c.StartCommand(ctx(t), guest.Command{ID: newID(), Argv: []string{"touch", "/tmp/ran"}, Env: []string{searchPath}, Dir: tt.dir, User: tt.user})
		if !errors.Is(err, guest.ErrNoDir) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("dir %s: %v", tt.dir, err)
		}
	}
	if r := run(t, c, guest.Command{Argv: []string{"test", "-e", "/tmp/ran"}}); r.code != 1 {
		t.Error("a command ran although its directory cannot be entered")
	}
}

func TestEnvironmentAndArguments(t *testing.T) {
	_, c := assembled(t)
	values := []string{"it's", `say "hi"`, "$(touch /tmp/pwn) `touch /tmp/pwn` $HOME", "line1\nline2\n", "", "naïve ☕ 你好", "a=b=c", `\n\t\\` + "\t", "!! * ? [x] ; & |", "\xff\xfe"}
	env := []string{searchPath}
	for i, v := range values {
		env = append(env, "V"+strconv.Itoa(i)+"="+v)
	}
	r := run(t, c, guest.Command{Argv: append([]string{"printf", `%s\0`}, values...), Env: env})
	if want := strings.Join(values, "\x00") + "\x00"; r.out != want {
		t.Errorf("arguments: %q", r.out)
	}
	r = run(t, c, guest.Command{Argv: []string{"env", "-0"}, Env: env})
	if want := strings.Join(env, "\x00") + "\x00"; r.out != want {
		t.Errorf("environment: %q, want %q", r.out, want)
	}
	big := "BIG=" + strings.Repeat("x", 100_000)
	r = run(t, c, guest.Command{Argv: []string{"sh", "-c", "echo ${#BIG}"}, Env: append(env, big, "B2"+big, "B3"+big, "B4"+big)})
	if r.out != "99996\n" && r.out != "100000\n" {
		t.Errorf("an environment beyond a frame: %+v", r)
	}
	err := c.StartCommand(ctx(t), guest.Command{ID: newID(), Argv: []string{"echo", "a\x00b"}, Dir: "/"})
	if err == nil || !strings.Contains(err.Error(), "NUL") {
		t.Errorf("NUL in an argument: %v", err)
	}
}

func TestUser(t *testing.T) {
	_, c := assembled(t)
	u := guest.User{UID: 1000, GID: 1001, Groups: []uint32{1001, 27, 5000}}
	r := run(t, c, guest.Command{Argv: []string{"sh", "-c", "id -u; id -ru; id -g; id -G; grep -E '^Cap(Eff|Prm|Inh)' /proc/self/status"}, User: u})
	if !strings.HasPrefix(r.out, "1000\n1000\n1001\n1001 27 5000\n") || strings.Contains(strings.ReplaceAll(r.out, "0000000000000000", ""), "1f") {
		t.Errorf("user: %+v", r)
	}
	r = run(t, c, guest.Command{Argv: []string{"sh", "-c", "echo $$; ps -o pid=,sid=,pgid= -p $$; [ -t 0 ] || echo notty; readlink /proc/self/fd/0; ls -l /proc/self/fd | grep -c -v 'null$'; umask; cat /proc/self/status | grep SigBlk; grep SigIgn /proc/self/status"}})
	f := strings.Fields(r.out)
	if len(f) < 8 || f[0] != f[1] || f[1] != f[2] || f[2] != f[3] || f[4] != "notty" || f[5] != "/dev/null" || f[6] != "4" || f[7] != "0022" {
		t.Errorf("session, stdin, descriptors, umask: %q %+v", f, r)
	}
	if !strings.Contains(r.out, "SigBlk:\t0000000000000000") || !strings.Contains(r.out, "SigIgn:\t0000000000000000") {
		t.Errorf("signals: %s", r.out)
	}
}

func TestAssembledRoot(t *testing.T) {
	g, c := assembled(t)
	r := shell(t, c, `hostname; cat /layer-one; cat /etc/resolv.conf; stat -c '%a %u' /tmp /vercel/sandbox; ls -a / | grep -c glovebox-old; ls /agent 2>&1`)
	for _, want := range []string{"box\n", "topmost", "nameserver 10.88.0.1", "1777 0\n755 1000\n0\n", "cannot access '/agent'"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is missing in:\n%s", want, r.out)
		}
	}
	r = shell(t, c, "mount -t tmpfs none /mnt; echo $?; unshare -m true; echo $?; grep CapBnd /proc/self/status")
	if strings.Contains(r.out, "\n0\n") || strings.HasPrefix(r.out, "0\n") {
		t.Errorf("root may still mount: %+v", r)
	}
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(g.PID), "status"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		name, hex, _ := strings.Cut(line, ":\t")
		if !strings.HasPrefix(name, "Cap") || name == "CapAmb" {
			continue
		}
		v, err := strconv.ParseUint(hex, 16, 64)
		if err != nil || v&(1<<21|1<<8) != 0 {
			t.Errorf("the agent kept %s %s", name, hex)
		}
	}
	if err := c.Assemble(ctx(t), guest.Assembly{Layers: 1}); err == nil {
		t.Error("a second Assemble succeeded")
	}
}

func TestStartBeforeAssemble(t *testing.T) {
	_, c := bare(t, 16)
	if err := c.StartCommand(ctx(t), guest.Command{ID: "x", Argv: []string{"true"}, Dir: "/"}); err == nil || !strings.Contains(err.Error(), "not assembled") {
		t.Errorf("start before assemble: %v", err)
	}
	if err := c.Warmup(ctx(t)); err != nil {
		t.Errorf("warm-up: %v", err)
	}
	if err := c.Assemble(ctx(t), guest.Assembly{Layers: 9}); err == nil {
		t.Error("nine layers were taken")
	}
	if err := c.Assemble(ctx(t), guest.Assembly{Layers: 1, Hostname: "h"}); err != nil {
		t.Error(err)
	}
	if err := c.Warmup(ctx(t)); err != nil {
		t.Errorf("warm-up: %v", err)
	}
	if r := shell(t, c, "sleep 1; grep -l '^State:.Z' /proc/[0-9]*/status | wc -l"); r.out != "0\n" {
		t.Errorf("zombies: %+v", r)
	}
}

func TestStartIsIdempotent(t *testing.T) {
	_, c := assembled(t)
	cmd := guest.Command{ID: "once", Argv: []string{"sh", "-c", "echo x >> /tmp/count"}}
	for range 3 {
		begin(t, c, cmd)
	}
	finish(t, c, "once")
	begin(t, c, cmd)
	if r := shell(t, c, "wc -l < /tmp/count"); r.out != "1\n" {
		t.Errorf("runs: %s", r.out)
	}
	if err := c.Forget(ctx(t), "once"); err != nil {
		t.Error(err)
	}
	if err := c.Forget(ctx(t), "once"); !errors.Is(err, guest.ErrNoCommand) {
		t.Errorf("forget twice: %v", err)
	}
}

// A start that is repeated does not take the log from its reader.
func TestStartAgainWhileAttached(t *testing.T) {
	_, c := assembled(t)
	cmd := guest.Command{ID: "again", Argv: []string{"cat"}, Stdin: true}
	begin(t, c, cmd)
	begin(t, c, cmd)
	end := make(chan error, 1)
	l := newLog()
	go func() { end <- c.Attach(ctx(t), "again", 0, l.sink) }()
	for range 10 {
		if err := c.WriteStdin(ctx(t), "again", []byte("x")); err != nil {
			t.Fatal(err)
		}
		begin(t, c, cmd)
	}
	if err := c.CloseStdin(ctx(t), "again"); err != nil {
		t.Fatal(err)
	}
	if err := <-end; err != nil || l.out.String() != "xxxxxxxxxx" {
		t.Errorf("%v, %q", err, l.out.String())
	}
}

// Logs that nobody reads for now hold up nothing.
func TestStartedAndNotRead(t *testing.T) {
	g, c := assembled(t)
	var ids []string
	for range 80 {
		ids = append(ids, begin(t, c, guest.Command{Argv: []string{"seq", "1", "100000"}}))
	}
	if r := shell(t, c, "echo ok"); r.out != "ok\n" {
		t.Errorf("%+v", r)
	}
	for i, id := range ids {
		if i == 40 {
			c.Close()
			c = connect(t, g)
		}
		if r := finish(t, c, id); len(r.out) != 588895 {
			t.Errorf("command %d: %d bytes", i, len(r.out))
		}
	}
}

// A background process neither holds up the end of its command, nor is it
// ended by it, nor by SIGPIPE when it writes later.
func TestBackgroundProcess(t *testing.T) {
	_, c := assembled(t)
	r := shell(t, c, "echo hi; sleep 45 & echo $! > /tmp/pid")
	if r.out != "hi\n" || r.code != 0 || r.took > 2*time.Second {
		t.Errorf("%+v", r)
	}
	if r := shell(t, c, "kill -0 $(cat /tmp/pid) && echo running"); r.out != "running\n" {
		t.Errorf("background process: %+v", r)
	}
	r = shell(t, c, "(sleep 0.3; echo tail) & exit 3")
	if r.code != 3 {
		t.Errorf("%+v", r)
	}
	r = shell(t, c, "(while echo noise; do sleep 0.01; done) & exit 4")
	if r.code != 4 || r.took > 3*time.Second {
		t.Errorf("a child that goes on writing: code %d after %s", r.code, r.took)
	}
	shell(t, c, "(for i in $(seq 30); do sleep 0.1; echo $i || exit 1; done; echo lived > /tmp/lived) & exit 0")
	r = shell(t, c, "for i in $(seq 100); do [ -e /tmp/lived ] && break; sleep 0.1; done; cat /tmp/lived")
	if r.out != "lived\n" {
		t.Errorf("a process was ended by its late output: %+v", r)
	}
}

// Output that is in the pipe when the process ends is never lost, however long
// the host takes to ask for it.
func TestFullRingLosesNothing(t *testing.T) {
	_, c := assembled(t)
	id := begin(t, c, guest.Command{Argv: []string{"sh", "-c", "seq 1 200000; sleep 20 & exit 6"}})
	time.Sleep(1500 * time.Millisecond) // longer than any grace
	r := finish(t, c, id)
	if lines := strings.Count(r.out, "\n"); lines != 200000 || r.code != 6 || !strings.HasSuffix(r.out, "\n200000\n") {
		t.Errorf("%d lines, code %d", lines, r.code)
	}
}

func TestOrphansAreReaped(t *testing.T) {
	_, c := assembled(t)
	for range 20 {
		if r := shell(t, c, "for i in $(seq 10); do (sleep 0.05 &); done"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	r := shell(t, c, `for i in $(seq 50); do n=$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l); [ $n = 0 ] && break; sleep 0.1; done; echo $n`)
	if r.out != "0\n" {
		t.Errorf("zombies: %s", r.out)
	}
}

func TestManyAtOnce(t *testing.T) {
	_, c := assembled(t)
	var wg sync.WaitGroup
	for k := range 60 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			id := newID()
			err := c.StartCommand(ctx(t), guest.Command{ID: id, Dir: "/tmp", Env: []string{searchPath, "K=" + strconv.Itoa(k)},
				Argv: []string{"sh", "-c", "for i in $(seq 200); do echo cmd-$K-$i; done; exit $K"}})
			l := newLog()
			if err == nil {
				err = c.Attach(ctx(t), id, 0, l.sink)
			}
			if err != nil {
				t.Error(err)
				return
			}
			var want strings.Builder
			for i := 1; i <= 200; i++ {
				fmt.Fprintf(&want, "cmd-%d-%d\n", k, i)
			}
			if l.out.String() != want.String() || l.code != k {
				t.Errorf("command %d: code %d, %d bytes", k, l.code, l.out.Len())
			}
		}()
	}
	wg.Wait()
}

// A host that comes back asks from the length of what it has stored on.
func TestAttachAgain(t *testing.T) {
	g, c := assembled(t)
	id := begin(t, c, guest.Command{Argv: []string{"sh", "-c", "seq 1 400000; exit 9"}})
	l := newLog()
	stop := errors.New("enough")
	for round := 0; ; round++ {
		limit := l.size + 300_000
		err := c.Attach(ctx(t), id, l.size, func(off int64, b []byte) error {
			if off != l.size {
				t.Fatalf("piece at %d, want %d", off, l.size)
			}
			if l.size > limit {
				return stop
			}
			return l.sink(off, b)
		})
		if err == nil {
			break
		}
		if !errors.Is(err, stop) {
			t.Fatal(err)
		}
		if round%2 == 1 { // and now with a new session
			c.Close()
			c = connect(t, g)
		}
	}
	r := l.result(t)
	if strings.Count(r.out, "\n") != 400000 || r.code != 9 || !strings.HasSuffix(r.out, "\n400000\n") {
		t.Errorf("%d lines, code %d", strings.Count(r.out, "\n"), r.code)
	}
	if err := c.Attach(ctx(t), id, 5, l.sink); !errors.Is(err, guest.ErrCursor) {
		t.Errorf("cursor in what was acknowledged: %v", err)
	}
	if err := c.Attach(ctx(t), id, l.size+1, l.sink); !errors.Is(err, guest.ErrCursor) {
		t.Errorf("cursor beyond the end: %v", err)
	}
	if err := c.Attach(ctx(t), id, l.size, l.sink); err != nil {
		t.Errorf("attach at the end: %v", err)
	}
	if err := c.Attach(ctx(t), "unknown", 0, l.sink); !errors.Is(err, guest.ErrNoCommand) {
		t.Errorf("unknown command: %v", err)
	}
}

func TestNewerAttachEndsOlder(t *testing.T) {
	_, c := assembled(t)
	id := begin(t, c, guest.Command{Argv: []string{"cat"}, Stdin: true})
	older := make(chan error, 1)
	started := make(chan struct{}, 1)
	go func() {
		older <- c.Attach(ctx(t), id, 0, func(int64, []byte) error {
			select {
			case started <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	if err := c.WriteStdin(ctx(t), id, []byte("x")); err != nil {
		t.Fatal(err)
	}
	<-started
	newer := make(chan error, 1)
	go func() { newer <- c.Attach(ctx(t), id, 6, newLog().sink) }()
	if err := <-older; !errors.Is(err, guest.ErrSuperseded) {
		t.Errorf("older attach: %v", err)
	}
	if err := c.CloseStdin(ctx(t), id); err != nil {
		t.Fatal(err)
	}
	if err := <-newer; err != nil {
		t.Errorf("newer attach: %v", err)
	}
}

// A reader that takes nothing holds up neither other commands nor other calls.
func TestSlowReader(t *testing.T) {
	_, c := assembled(t)
	release := make(chan struct{})
	slow := make(chan error, 1)
	id := begin(t, c, guest.Command{Argv: []string{"seq", "1", "1000000"}})
	l := newLog()
	go func() {
		slow <- c.Attach(ctx(t), id, 0, func(off int64, b []byte) error {
			<-release
			return l.sink(off, b)
		})
	}()
	for range 20 {
		if r := run(t, c, guest.Command{Argv: []string{"seq", "1", "100000"}}); len(r.out) != 588895 || r.took > 5*time.Second {
			t.Fatalf("%d bytes after %s", len(r.out), r.took)
		}
	}
	close(release)
	if err := <-slow; err != nil || strings.Count(l.out.String(), "\n") != 1000000 {
		t.Errorf("slow reader: %v, %d lines", err, strings.Count(l.out.String(), "\n"))
	}
}

func TestAttachEndsWithContext(t *testing.T) {
	_, c := assembled(t)
	id := begin(t, c, guest.Command{Argv: []string{"sleep", "60"}})
	short, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	if err := c.Attach(short, id, 0, newLog().sink); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("attach: %v", err)
	}
	if err := c.Signal(ctx(t), id, 9, true); err != nil {
		t.Error(err)
	}
	if r := finish(t, c, id); r.code != 137 {
		t.Errorf("%+v", r)
	}
}
