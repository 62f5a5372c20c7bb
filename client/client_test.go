package client_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
	"github.com/glovebox-dev/glovebox/internal/server"
	"github.com/glovebox-dev/glovebox/internal/server/fakecontrol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newClient returns a client of a server on a fake control plane, through
// wrap, which may do harm to requests.
func newClient(t testing.TB, wrap func(http.Handler) http.Handler) (*client.Client, *fakecontrol.Control) {
	t.Helper()
	control := fakecontrol.New()
	s, err := server.New(server.Config{Control: control, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var handler http.Handler = s
	if wrap != nil {
		handler = wrap(s)
	}
	ts := httptest.NewServer(handler)
	c, err := client.New(ts.URL+"/", fakecontrol.AlphaToken)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.CloseIdle()
		ts.CloseClientConnections()
		ts.Close()
		control.Close()
	})
	return c, control
}

func newSandbox(t testing.TB, c *client.Client) *client.Sandbox {
	t.Helper()
	s, err := c.CreateSandbox(t.Context(), api.CreateSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNewRefusesBadURLs(t *testing.T) {
	for _, url := range []string{"", "127.0.0.1:7070", "ftp://host", "http://", "http://a b"} {
		if _, err := client.New(url, "t"); err == nil {
			t.Errorf("%q was accepted", url)
		}
	}
}

func TestSandboxLife(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, nil)
	s, err := c.CreateSandbox(ctx, api.CreateSandboxRequest{Name: "a", Tags: map[string]string{"k": "v"}})
	if err != nil {
		t.Fatal(err)
	}
	if url, err := s.Domain(3000); err != nil || url != "http://sb-1.localhost:7070" {
		t.Errorf("domain %q, %v", url, err)
	}
	if _, err := s.Domain(4000); err == nil || !strings.Contains(err.Error(), "4000") {
		t.Errorf("domain of a port that is not there: %v", err)
	}
	if err := s.Update(ctx, api.UpdateSandboxRequest{Timeout: api.IntOf(99_000)}); err != nil || s.Info().Timeout != 99_000 {
		t.Errorf("update: %v, timeout %d", err, s.Info().Timeout)
	}
	if err := s.ExtendTimeout(ctx, time.Minute); err != nil || s.Session().Timeout != 360_000 {
		t.Errorf("extend: %v, timeout %d", err, s.Session().Timeout)
	}
	if err := s.SetNetworkPolicy(ctx, api.NetworkPolicy{Mode: api.PolicyDenyAll}); err != nil || s.Session().NetworkPolicy.Mode != api.PolicyDenyAll {
		t.Errorf("policy: %v", err)
	}
	if _, err := s.Stop(ctx); err != nil || s.Session().Status != api.StatusStopped {
		t.Errorf("stop: %v, %s", err, s.Session().Status)
	}
	again, err := c.GetSandbox(ctx, "a")
	if err != nil || again.Session().Status != api.StatusStopped {
		t.Fatalf("get: %v", err)
	}
	if err := again.Delete(ctx); err != nil {
		t.Error(err)
	}
	_, err = c.GetSandbox(ctx, "a")
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeNotFound {
		t.Errorf("get after delete: %v", err)
	}
}

func TestListFollowsPages(t *testing.T) {
	c, _ := newClient(t, nil)
	for range 7 {
		newSandbox(t, c)
	}
	var names []string
	for s, err := range c.ListSandboxes(t.Context(), client.ListOptions{PageSize: 3, NamePrefix: "sandbox-"}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, s.Name)
	}
	if len(names) != 7 {
		t.Errorf("%d names: %v", len(names), names)
	}
	for _, err := range c.ListSandboxes(t.Context(), client.ListOptions{SortBy: "colour"}) {
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeBadRequest {
			t.Errorf("error %v", err)
		}
	}
	n := 0
	for _, err := range c.ListSessions(t.Context(), "") {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 7 {
		t.Errorf("%d sessions", n)
	}
}

func TestRunCommand(t *testing.T) {
	c, _ := newClient(t, nil)
	s := newSandbox(t, c)
	var stdout, stderr bytes.Buffer
	cmd, err := s.RunCommand(t.Context(), client.Cmd{Name: "both", Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		t.Fatal(err)
	}
	if stdout.String() != "out ☕\n" || stderr.String() != "err\n" || cmd.ExitCode() != 3 || cmd.Duration() != 5*time.Millisecond {
		t.Errorf("%q %q %d %v", stdout.String(), stderr.String(), cmd.ExitCode(), cmd.Duration())
	}
	if _, err := s.RunCommand(t.Context(), client.Cmd{}); err == nil {
		t.Error("an empty command ran")
	}
}

func TestRunCommandWithStdin(t *testing.T) {
	c, _ := newClient(t, nil)
	s := newSandbox(t, c)
	input := strings.Repeat("0123456789abcde\n", 1<<16)
	var stdout bytes.Buffer
	cmd, err := s.RunCommand(t.Context(), client.Cmd{Name: "cat", Stdin: strings.NewReader(input), Stdout: &stdout})
	if err != nil || cmd.ExitCode() != 0 {
		t.Fatal(err)
	}
	if stdout.String() != input {
		t.Errorf("%d bytes came back, want %d", stdout.Len(), len(input))
	}
	// A command that does not care about its input ends all the same.
	pr, pw := io.Pipe()
	defer pw.Close()
	if _, err := s.RunCommand(t.Context(), client.Cmd{Name: "true", Stdin: pr}); err != nil {
		t.Error(err)
	}
}

// Neither the command's end nor a cancellation waits for an input that has
// nothing to give.
func TestWriteStdinEnds(t *testing.T) {
	c, _ := newClient(t, nil)
	s := newSandbox(t, c)
	start := func(name string) *client.Command {
		cmd, err := s.StartCommand(t.Context(), client.Cmd{Name: name, Stdin: strings.NewReader("")})
		if err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	if err := start("cat").WriteStdin(t.Context(), strings.NewReader("all")); err != nil {
		t.Errorf("an input that ends: %v", err)
	}
	pr, pw := io.Pipe()
	defer pw.Close()
	go func() { _, _ = io.WriteString(pw, "line\n") }()
	if err := start("first-line").WriteStdin(t.Context(), pr); err != nil {
		t.Errorf("a command that ends: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	blocked, never := io.Pipe()
	defer never.Close()
	if err := start("cat").WriteStdin(ctx, blocked); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancellation: %v", err)
	}
}

func TestDetachedCommand(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, nil)
	s := newSandbox(t, c)
	cmd, err := s.StartCommand(ctx, client.Cmd{Name: "say-and-sleep"})
	if err != nil || cmd.ExitCode() != -1 {
		t.Fatal(err)
	}
	for log, err := range cmd.Logs(ctx) {
		if err != nil || log != (api.LogLine{Stream: api.Stdout, Data: "ready\n"}) {
			t.Fatalf("%+v, %v", log, err)
		}
		if err := cmd.Kill(ctx, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	same, err := s.Command(ctx, cmd.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := same.Wait(ctx); err != nil || same.ExitCode() != 137 {
		t.Errorf("exit code %d, %v", same.ExitCode(), err)
	}
	if all, err := s.Commands(ctx); err != nil || len(all) != 1 {
		t.Errorf("%d commands, %v", len(all), err)
	}
}

func TestCancelledRunLeavesTheCommand(t *testing.T) {
	c, _ := newClient(t, nil)
	s := newSandbox(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	cmd, err := s.RunCommand(ctx, client.Cmd{Name: "say-and-sleep", Stdout: writerFunc(func([]byte) { cancel() })})
	if !errors.Is(err, context.Canceled) || cmd == nil {
		t.Fatalf("%v, %v", cmd, err)
	}
	if err := cmd.Refresh(t.Context()); err != nil || cmd.ExitCode() != -1 {
		t.Errorf("exit code %d, %v", cmd.ExitCode(), err)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func TestFiles(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, nil)
	s := newSandbox(t, c)
	big := bytes.Repeat([]byte{0, 0xff, '\n', 7}, 1<<20)
	long := strings.Repeat("長い名前/", 30) + "f"
	if err := s.WriteFiles(ctx, map[string][]byte{"big": big, "/abs/ünï": []byte("x"), long: []byte("y"), "d/../up": {}}); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteFile(ctx, "run.sh", []byte("#!"), 0o755); err != nil {
		t.Fatal(err)
	}
	tree := fstest.MapFS{"one": {Data: []byte("1")}, "sub/two": {Data: []byte("2")}}
	if err := s.WriteFS(ctx, "/tree", tree); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"/vercel/sandbox/big": string(big), "/abs/ünï": "x", long: "y", "up": "", "run.sh": "#!", "/tree/one": "1", "/tree/sub/two": "2",
	} {
		r, err := s.ReadFile(ctx, name)
		if err != nil {
			t.Errorf("read %s: %v", name, err)
			continue
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, want %d, %v", name, len(got), len(want), err)
		}
	}
	if _, err := s.ReadFile(ctx, "/missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := s.ReadFile(ctx, "/tmp"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory: %v", err)
	}
	if err := s.Mkdir(ctx, "new"); err != nil {
		t.Error(err)
	}
	if err := s.Mkdir(ctx, "new"); err == nil {
		t.Error("a directory was made twice")
	}
}

func TestFailedFillWritesNothing(t *testing.T) {
	c, _ := newClient(t, nil)
	s := newSandbox(t, c)
	errFill := errors.New("no more")
	err := s.WriteTar(t.Context(), "/d", func(w *tar.Writer) error {
		if err := w.WriteHeader(&tar.Header{Name: "f", Size: 1, Mode: 0o644}); err != nil {
			return err
		}
		if _, err := w.Write([]byte("x")); err != nil {
			return err
		}
		return errFill
	})
	if !errors.Is(err, errFill) {
		t.Errorf("error %v", err)
	}
	if _, err := s.ReadFile(t.Context(), "/d/f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
}

func TestCutDownloadIsAnError(t *testing.T) {
	c, _ := newClient(t, nil)
	s := newSandbox(t, c)
	r, err := s.ReadFile(t.Context(), "/broken")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err == nil {
		t.Error("a file that broke off looked whole")
	}
}

// Calls of many goroutines on a stopped sandbox resume it once.
func TestStoppedSandboxResumes(t *testing.T) {
	ctx := t.Context()
	c, control := newClient(t, nil)
	s := newSandbox(t, c)
	if err := s.WriteFile(ctx, "kept", []byte("k"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for range 5 {
		calls.Go(func() {
			if cmd, err := s.RunCommand(ctx, client.Cmd{Name: "true"}); err != nil || cmd.ExitCode() != 0 {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if n := control.Calls("Resume"); n != 1 {
		t.Errorf("resumed %d times", n)
	}
	if _, err := s.ReadFile(ctx, "kept"); err != nil {
		t.Error(err)
	}
	once := false
	short, err := c.CreateSandbox(ctx, api.CreateSandboxRequest{Persistent: &once})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := short.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = short.StartCommand(ctx, client.Cmd{Name: "true"})
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeSandboxStopped || !strings.Contains(e.Message, "not persistent") {
		t.Errorf("a sandbox that is not persistent: %v", err)
	}
}

// failFirst answers the first n requests of a method and path suffix with a
// status, or cuts them off after they were carried out where that is 0.
func failFirst(n int32, suffix string, status int) func(http.Handler) http.Handler {
	var left atomic.Int32
	left.Store(n)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, suffix) || left.Add(-1) < 0 {
				next.ServeHTTP(w, r)
				return
			}
			if status == 0 {
				next.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(status)
		})
	}
}

func TestRetries(t *testing.T) {
	for name, wrap := range map[string]func(http.Handler) http.Handler{
		"cut after it was carried out": failFirst(2, "/v3/sandboxes", 0),
		"503":                          failFirst(2, "/v3/sandboxes", 503),
		"429":                          failFirst(1, "/v3/sandboxes", 429),
	} {
		t.Run(name, func(t *testing.T) {
			c, control := newClient(t, wrap)
			newSandbox(t, c)
			if n := control.Calls("CreateSandbox"); n != 1 {
				t.Errorf("%d sandboxes", n)
			}
		})
	}
}

// What is neither repeatable nor keyed is not sent twice when nobody knows
// whether it was carried out.
func TestNoBlindRepeats(t *testing.T) {
	c, control := newClient(t, failFirst(1, "/extend-timeout", 0))
	s := newSandbox(t, c)
	if err := s.ExtendTimeout(t.Context(), time.Minute); err == nil {
		t.Error("a lost answer was no error")
	}
	if n := control.Calls("ExtendTimeout"); n != 1 {
		t.Errorf("carried out %d times", n)
	}
}

// cutAfter closes the connection after n bytes of the first answer of a path.
func cutAfter(n int, suffix string) func(http.Handler) http.Handler {
	var done atomic.Bool
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, suffix) && !done.Swap(true) {
				w = &cutWriter{ResponseWriter: w, left: n}
			}
			next.ServeHTTP(w, r)
		})
	}
}

type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *cutWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		_, _ = w.ResponseWriter.Write(p[:w.left])
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	w.left -= len(p)
	return w.ResponseWriter.Write(p)
}

// A stream that is cut goes on at the same byte.
func TestCutStreamGoesOn(t *testing.T) {
	for _, n := range []int{500, 100_000, 1_000_000} {
		c, control := newClient(t, cutAfter(n, "/cmd"))
		s := newSandbox(t, c)
		var stdout bytes.Buffer
		cmd, err := s.RunCommand(t.Context(), client.Cmd{Name: "flood", Args: []string{"2000000"}, Stdout: &stdout})
		if err != nil || cmd.ExitCode() != 0 {
			t.Fatal(err)
		}
		if stdout.Len() != 2_000_000 || control.Calls("RunCommand") != 1 {
			t.Errorf("cut after %d: %d bytes, run %d times", n, stdout.Len(), control.Calls("RunCommand"))
		}
	}
}

func TestShell(t *testing.T) {
	c, _ := newClient(t, nil)
	s := newSandbox(t, c)
	sh, err := s.Shell(t.Context(), client.ShellOptions{Args: []string{"-l"}, Env: map[string]string{"A": "b"}, Cols: 90, Rows: 20})
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	if err := sh.Resize(70, 10); err != nil {
		t.Error(err)
	}
	if _, err := io.WriteString(sh, "hi\nexit 9\n"); err != nil {
		t.Error(err)
	}
	out, err := io.ReadAll(sh)
	if err != nil || sh.ExitCode() != 9 {
		t.Errorf("exit code %d, %v", sh.ExitCode(), err)
	}
	if want := "sh -l A=b 90x20\r\nsize 70x10\r\nhi\r\n"; string(out) != want {
		t.Errorf("shown %q, want %q", out, want)
	}
}

func TestShellRefused(t *testing.T) {
	c, _ := newClient(t, nil)
	s := newSandbox(t, c)
	sh, err := s.Shell(t.Context(), client.ShellOptions{Dir: "/missing"})
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	_, err = io.ReadAll(sh)
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeBadRequest {
		t.Errorf("error %v", err)
	}
}

func TestStatusAndHealth(t *testing.T) {
	c, _ := newClient(t, nil)
	if st, err := c.Status(t.Context()); err != nil || st.Driver != "fake" {
		t.Errorf("%+v, %v", st, err)
	}
	if h, err := c.Health(t.Context()); err != nil || !h.Ready() {
		t.Errorf("%+v, %v", h, err)
	}
	other, err := client.New(c.URL(), "wrong")
	if err != nil {
		t.Fatal(err)
	}
	defer other.CloseIdle()
	_, err = other.Status(t.Context())
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeUnauthorized {
		t.Errorf("wrong token: %v", err)
	}
}

// An answer of something that is no Glovebox says so.
func TestWrongServer(t *testing.T) {
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>hello</html>")
	}))
	defer ts.Close()
	c, err := client.New(ts.URL, "t")
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	if _, err := c.GetSandbox(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "is the URL right?") {
		t.Errorf("error %v", err)
	}
}
