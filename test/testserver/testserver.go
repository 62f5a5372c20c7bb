// Package testserver runs the built binary as a server for tests, and tells
// afterwards what it left on the machine.
package testserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/image"
)

const (
	readyTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
)

// Server is a running `glovebox serve` with a data directory of its own.
type Server struct {
	URL     string // http://127.0.0.1:PORT
	Token   string // the first token
	DataDir string
	Bin     string
	Pid     int

	flags  []string
	cmd    *exec.Cmd
	log    *os.File
	exited chan struct{} // closed after Wait
	before Footprint
}

// Root is the repository's root directory.
func Root(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	if filepath.IsAbs(file) {
		return filepath.Join(filepath.Dir(file), "..", "..")
	}
	// With -trimpath the file has no directory: then the test's own tells.
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the test's directory")
	return ""
}

// Binary is the built program; the test fails with the remedy without it.
func Binary(t testing.TB) string {
	t.Helper()
	bin := filepath.Join(Root(t), "bin", "glovebox")
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("%v\nremedy: make build", err)
	}
	if os.Geteuid() != 0 {
		t.Fatal("sandboxes need root\nremedy: make test, which asks for it")
	}
	return bin
}

// Start runs a server on a free loopback port with extra flags of serve and
// waits until it is healthy. It is stopped, and checked for leftovers, when
// the test ends.
func Start(t testing.TB, flags ...string) *Server {
	t.Helper()
	bin := Binary(t)
	s := &Server{Bin: bin, Token: "test-" + rand.Text(), DataDir: t.TempDir()}
	s.before = Measure(t, bin, s.DataDir)
	seed(t, s.DataDir)
	addr := freeAddr(t)
	s.URL = "http://" + addr
	var err error
	if s.log, err = os.Create(filepath.Join(t.TempDir(), "server.log")); err != nil {
		t.Fatal(err)
	}
	s.flags = append([]string{"serve", "--listen", addr, "--data-dir", s.DataDir}, flags...)
	t.Cleanup(func() { s.end(t) })
	s.launch(t)
	return s
}

// launch starts the program and waits until it is healthy.
func (s *Server) launch(t testing.TB) {
	t.Helper()
	s.cmd = exec.Command(s.Bin, s.flags...)
	s.cmd.Env = append(os.Environ(), "GLOVEBOX_TOKEN="+s.Token)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.Pid = s.cmd.Process.Pid
	cmd, exited := s.cmd, make(chan struct{})
	s.exited = exited
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(exited)
	}()
	s.awaitHealth(t)
}

// KillAndRestart ends the server as a crash would and starts it again with
// the same data directory, address and token.
func (s *Server) KillAndRestart(t testing.TB) {
	t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.exited
	s.launch(t)
}

// KillAllAndRestart is KillAndRestart of a server whose machines have ended
// too, as when the host restarts.
func (s *Server) KillAllAndRestart(t testing.TB) {
	t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.exited
	states, err := filepath.Glob(filepath.Join(s.DataDir, "machines", "*", "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range states {
		var state struct{ PID int }
		b, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(b, &state)
		}
		if err != nil {
			t.Fatal(err)
		}
		if state.PID > 0 { // of a machine that this server has started
			_ = syscall.Kill(state.PID, syscall.SIGKILL)
		}
	}
	s.launch(t)
}

// Restart ends the server in good order and starts it again with the same
// data directory, address and token.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop(t)
	s.launch(t)
}

// freeAddr is an address with a free port, of those that the host does not
// give to outgoing connections: it must be free again after a restart.
func freeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+mathrand.IntN(20_000))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port from 10000 to 30000")
	return ""
}

// seed gives the data directory the images that `make image` made.
func seed(t testing.TB, dir string) {
	t.Helper()
	shared := filepath.Join(Root(t), ".glovebox")
	if _, err := os.Stat(filepath.Join(shared, "images")); err != nil {
		t.Fatalf("%v\nremedy: make image", err)
	}
	store, err := image.Open(dir, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.Link(shared), store.Close()); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) awaitHealth(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	for {
		if answer, err := http.Get(s.URL + "/healthz"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-s.exited:
			t.Fatalf("the server ended: %v\n%s", s.cmd.ProcessState, s.Log(t))
		case <-ctx.Done():
			t.Fatalf("the server was not healthy within %v\n%s", readyTimeout, s.Log(t))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Log is the end of what the server has logged.
func (s *Server) Log(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(s.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	const tail = 16 << 10
	if len(b) > tail {
		b = b[len(b)-tail:]
	}
	return string(bytes.TrimSpace(b))
}

// Stop sends SIGTERM and waits until the server has ended. Idempotent.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // an error says that it has ended
	select {
	case <-s.exited:
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill()
		<-s.exited
		t.Errorf("the server did not end within %v of SIGTERM\n%s", stopTimeout, s.Log(t))
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the server ended with %v\n%s", s.cmd.ProcessState, s.Log(t))
	}
}

func (s *Server) end(t testing.TB) {
	s.Stop(t)
	if t.Failed() {
		t.Logf("end of the server's log:\n%s", s.Log(t))
	}
	s.before.AssertSame(t, s.Bin, s.DataDir)
	s.assertTidy(t)
	s.log.Close()
}

// assertTidy: what a stopped server leaves in its data directory is what
// docs/configuration.md lists, and none of it belongs to a running thing.
func (s *Server) assertTidy(t testing.TB) {
	t.Helper()
	err := filepath.WalkDir(s.DataDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(s.DataDir, path)
		if err != nil {
			return err
		}
		if d.Type()&(fs.ModeSocket|fs.ModeNamedPipe|fs.ModeDevice) != 0 {
			t.Errorf("the server left %s (%v)", rel, d.Type())
		}
		if top, rest, _ := strings.Cut(rel, "/"); rest != "" && (top == "machines" || top == "run" || rest == "partial" && !empty(path)) {
			t.Errorf("the server left %s", rel)
		}
		return nil
	})
	if err != nil {
		t.Error(fmt.Errorf("look through the data directory: %w", err))
	}
}

func empty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0
}
