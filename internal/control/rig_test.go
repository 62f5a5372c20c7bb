package control

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeClock stands still until it is moved.
type fakeClock struct {
	mu      sync.Mutex
	now     time.Time
	timers  map[*fakeTimer]bool
	changed *sync.Cond
}

// blockUntil waits until n timers run.
func (c *fakeClock) blockUntil(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.timers) != n {
		c.changed.Wait()
	}
}

// blockUntilDue waits until a timer runs that is due d from now.
func (c *fakeClock) blockUntilDue(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for t := range c.timers {
			if t.at.Equal(c.now.Add(d)) {
				return
			}
		}
		c.changed.Wait()
	}
}

type fakeTimer struct {
	c  *fakeClock
	at time.Time
	f  func()
}

func newClock() *fakeClock {
	c := &fakeClock{now: time.UnixMilli(1_800_000_000_000), timers: map[*fakeTimer]bool{}}
	c.changed = sync.NewCond(&c.mu)
	return c
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) AfterFunc(d time.Duration, f func()) Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &fakeTimer{c: c, at: c.now.Add(d), f: f}
	c.timers[t] = true
	c.changed.Broadcast()
	return t
}

func (t *fakeTimer) Stop() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	was := t.c.timers[t]
	delete(t.c.timers, t)
	t.c.changed.Broadcast()
	return was
}

// advance moves the clock and runs what is due.
func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var due []*fakeTimer
	for t := range c.timers {
		if !t.at.After(c.now) {
			due = append(due, t)
			delete(c.timers, t)
		}
	}
	c.mu.Unlock()
	for _, t := range due {
		t.f()
	}
}

type fakeImages struct{ image image.Image }

func (f fakeImages) Resolve(_ context.Context, ref string) (image.Image, error) {
	switch ref {
	case "", "custom", f.image.Digest:
		return f.image, nil
	case "later":
		return image.Image{}, api.Errorf(api.CodeImageNotReady, "image later is being made")
	}
	return image.Image{}, fmt.Errorf("image %q is not here; pull it first", ref)
}

var testImage = image.Image{
	Reference: "glovebox/universal", Digest: "sha256:abc",
	Config: image.Config{
		Env: []string{"PATH=/opt/bin:/bin", "FOO=image", "HOME=/from-image"}, WorkingDir: "/vercel/sandbox",
		User: image.User{Name: "user", UID: 1000, GID: 1001, Groups: []uint32{1001, 7}, Home: "/home/user"},
	},
}

// rig is a Control over fakes.
type rig struct {
	*Project
	c     *Control
	node  *fakeNode
	clock *fakeClock
	dir   string
}

func newRig(t *testing.T) *rig { return rigAt(t, t.TempDir(), api.DefaultLimits()) }

func rigAt(t *testing.T, dir string, limits api.Limits) *rig {
	t.Helper()
	st, err := store.Open(t.Context(), filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{node: &fakeNode{programs: programs(), machines: map[string]*fakeMachine{}}, clock: newClock(), dir: dir}
	r.c, err = New(Config{
		Store: st, Node: r.node, Images: fakeImages{testImage}, Clock: r.clock, Limits: limits, LogDir: filepath.Join(dir, "sessions"),
		PreviewURL: func(s string) string { return "http://" + s + ".localhost" }, RootToken: "root", Version: "test", TakeOver: true,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if n := r.node.running(); n > 0 {
			t.Errorf("%d machines are left", n)
		}
	})
	if r.Project, err = r.c.Project(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	return r
}

// programs are what fake machines run.
func programs() map[string]func(*fakeProc) int {
	return map[string]func(*fakeProc) int{
		"true": func(*fakeProc) int { return 0 },
		"exit": func(p *fakeProc) int { n, _ := strconv.Atoi(p.Argv[1]); return n },
		"echo": func(p *fakeProc) int { fmt.Fprintln(p.stdout(), strings.Join(p.Argv[1:], " ")); return 0 },
		"env":  func(p *fakeProc) int { fmt.Fprintln(p.stdout(), strings.Join(p.Env, "\n")); return 0 },
		"id": func(p *fakeProc) int {
			fmt.Fprintln(p.stdout(), p.User.UID, p.User.GID, p.User.Groups, p.Dir)
			return 0
		},
		"cat": func(p *fakeProc) int { io.Copy(p.stdout(), p.in); return 0 },
		"sleep": func(p *fakeProc) int {
			fmt.Fprint(p.stdout(), strings.Join(p.Argv[1:], " "))
			<-p.killed
			return 0
		},
		"both": func(p *fakeProc) int {
			fmt.Fprint(p.stdout(), "out1 ")
			fmt.Fprint(p.stderr(), "err1 ")
			fmt.Fprint(p.stdout(), "out2")
			return 3
		},
		"sh": func(p *fakeProc) int { // the scripts of sources
			in, _ := io.ReadAll(p.in)
			args := strings.Join(p.Argv[min(3, len(p.Argv)):], " ")
			fmt.Fprintf(p.stderr(), "fatal: could not read %s with %s", args, in)
			if strings.Contains(args+string(in), "good") {
				return 0
			}
			return 128
		},
	}
}

func (r *rig) create(t *testing.T, req api.CreateSandboxRequest) *api.SandboxAndSession {
	t.Helper()
	sb, err := r.CreateSandbox(t.Context(), req, "")
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func (r *rig) run(t *testing.T, session string, argv ...string) *api.Command {
	t.Helper()
	cmd, err := r.RunCommand(t.Context(), session, api.RunCommandRequest{Command: argv[0], Args: argv[1:]}, "")
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

// output waits for the command's end and returns what it wrote.
func (r *rig) output(t *testing.T, cmd *api.Command) (stdout, stderr string, code int) {
	t.Helper()
	stdout, stderr = r.logs(t, cmd)
	done, err := r.WaitCommand(t.Context(), cmd.SessionID, cmd.ID)
	if err != nil {
		t.Fatal(err)
	}
	return stdout, stderr, *done.ExitCode
}

func (r *rig) logs(t *testing.T, cmd *api.Command) (stdout, stderr string) {
	t.Helper()
	l, err := r.CommandLogs(t.Context(), cmd.SessionID, cmd.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return drain(t, l)
}

func drain(t interface {
	Helper()
	Fatal(...any)
}, l *LogReader) (stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	for {
		stream, data, err := l.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return out.String(), errs.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if stream == api.Stdout {
			out.WriteString(data)
		} else {
			errs.WriteString(data)
		}
	}
}

// wantCode checks that err is an *api.Error with this code whose message
// holds every part.
func wantCode(t *testing.T, err error, code api.Code, parts ...string) {
	t.Helper()
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("error %v, want code %s", err, code)
	}
	for _, p := range parts {
		if !strings.Contains(e.Message, p) {
			t.Fatalf("message %q does not hold %q", e.Message, p)
		}
	}
}

func readTar(dir string, r io.Reader) (map[string]string, error) {
	files := map[string]string{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			return nil, err
		}
		files[path.Join(dir, h.Name)] = string(b)
	}
}

func makeTar(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		err := w.WriteHeader(&tar.Header{Name: files[i], Size: int64(len(files[i+1])), Mode: 0o644})
		if _, e := io.WriteString(w, files[i+1]); err != nil || e != nil {
			t.Fatal(err, e)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
