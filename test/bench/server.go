package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
)

const (
	readyTimeout = time.Minute
	pollEvery    = 20 * time.Millisecond
	// lifetime of a sandbox, far beyond that of a run.
	lifetime = time.Hour
)

// server is a `glovebox serve` on a loopback port.
type server struct {
	addr   string // HOST:PORT
	token  string
	warm   int
	client *client.Client
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
}

// startServer returns when sandboxes can be made.
func startServer(ctx context.Context, bin, dir string, warm int) (_ *server, err error) {
	s := &server{token: "bench-" + rand.Text(), warm: warm, log: filepath.Join(dir, "server.log"), exited: make(chan struct{})}
	if s.addr, err = freeAddr(); err != nil {
		return nil, err
	}
	if s.client, err = client.New("http://"+s.addr, s.token); err != nil {
		return nil, err
	}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	// Not bound to ctx: it is stopped in good order, also after Ctrl-C, of
	// which it hears nothing in a process group of its own.
	s.cmd = exec.CommandContext(context.WithoutCancel(ctx), bin, "serve", "--listen", s.addr, "--data-dir", dir, "--warm", strconv.Itoa(warm))
	s.cmd.Env = append(environ(), "GLOVEBOX_TOKEN="+s.token)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait() // how it ended is in ProcessState
		close(s.exited)
	}()
	err = await(ctx, readyTimeout, func() (bool, error) {
		select {
		case <-s.exited:
			return false, fmt.Errorf("the server ended: %v", s.cmd.ProcessState)
		default:
		}
		h, err := s.client.Health(ctx)
		return err == nil && h.Ready(), nil // an error is one of a server that does not listen yet
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start server: %w\n%s", err, s.logTail()), s.stop())
	}
	return s, nil
}

// stop ends the server, and with it everything that it runs.
func (s *server) stop() error {
	s.client.CloseIdle()
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // an error says that it has ended
	select {
	case <-s.exited:
	case <-time.After(undoTimeout):
		_ = s.cmd.Process.Kill()
		<-s.exited
		return fmt.Errorf("the server did not end within %v of SIGTERM", undoTimeout)
	}
	if !s.cmd.ProcessState.Success() {
		return fmt.Errorf("the server ended with %v\n%s", s.cmd.ProcessState, s.logTail())
	}
	return nil
}

func (s *server) logTail() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	const tail = 4 << 10
	return string(bytes.TrimSpace(text[max(0, len(text)-tail):]))
}

// awaitPool waits until status says that the pool is full.
func (s *server) awaitPool(ctx context.Context) error {
	if s.warm == 0 {
		return nil
	}
	err := await(ctx, readyTimeout, func() (bool, error) {
		status, err := s.client.Status(ctx)
		short := func(p api.PoolStatus) bool { return p.Ready < p.Target || p.Starting > 0 }
		return len(status.Pool) > 0 && !slices.ContainsFunc(status.Pool, short), err
	})
	if err != nil {
		return fmt.Errorf("wait for a full pool: %w", err)
	}
	return nil
}

// create makes a sandbox that keeps nothing.
func (s *server) create(ctx context.Context, ports ...int) (*client.Sandbox, error) {
	persistent := false
	req := api.CreateSandboxRequest{Persistent: &persistent, Timeout: api.IntOf(lifetime.Milliseconds())}
	for _, p := range ports {
		req.Ports = append(req.Ports, api.IntOf(int64(p)))
	}
	return s.client.CreateSandbox(ctx, req)
}

// sandbox makes one that the scope removes.
func (s *server) sandbox(ctx context.Context, sc *scope, ports ...int) (*client.Sandbox, error) {
	box, err := s.create(ctx, ports...)
	if err != nil {
		return nil, err
	}
	sc.onClose(func() error { return s.drop(ctx, box.Name()) })
	return box, nil
}

// drop deletes a sandbox by name, also when ctx has ended.
func (s *server) drop(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return s.client.DeleteSandbox(ctx, name, false)
}

// succeed runs a command that must exit with 0.
func succeed(ctx context.Context, box *client.Sandbox, argv ...string) error {
	cmd, err := box.RunCommand(ctx, client.Cmd{Name: argv[0], Args: argv[1:]})
	if err == nil && cmd.ExitCode() != 0 {
		err = fmt.Errorf("%s: exit code %d", argv[0], cmd.ExitCode())
	}
	return err
}

// await polls a condition.
func await(ctx context.Context, limit time.Duration, met func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %v", limit))
	defer cancel()
	for {
		ok, err := met()
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollEvery):
		}
	}
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// environ is ours without what would lead Glovebox elsewhere.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GLOVEBOX_") })
}
