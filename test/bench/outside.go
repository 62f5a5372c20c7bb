package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/glovebox-dev/glovebox/client"
	"github.com/glovebox-dev/glovebox/test/outside"
)

// outsideCommand is what the bench executes itself with, in a network
// namespace of its own: a server, and an outside for its sandboxes.
const outsideCommand = "serve-outside"

// originName is a server outside, originAddr where it is.
const (
	originName = "example.com"
	originAddr = "93.184.215.14"
)

// serveOutside runs `glovebox serve` on a data directory until SIGTERM.
func serveOutside(args []string) error {
	if len(args) != 2 {
		return errors.New("want the program and the data directory")
	}
	bin, dir := args[0], args[1]
	o, err := outside.Open()
	if err != nil {
		return err
	}
	o.Name(originName, originAddr)
	ca := filepath.Join(dir, "outside.pem")
	if err := os.WriteFile(ca, o.Authority(), 0o600); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(ctx, bin, "serve", "--listen", "127.0.0.1:7777", "--data-dir", dir, "--warm", "1", "--egress-ca-file", ca)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(environ(), "GLOVEBOX_DNS="+outside.DNS)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Run()
	if ctx.Err() != nil && cmd.ProcessState.Success() {
		return nil
	}
	return err
}

// outsideServer is a server whose sandboxes have an outside; s ends it.
func (r *rig) outsideServer(ctx context.Context, s *scope) (_ *client.Client, err error) {
	dir, err := r.dataDir("data-outside")
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(r.dir, "outside.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/proc/self/exe", outsideCommand, r.opts.bin, dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setpgid: true}
	runtime.LockOSThread()
	err = cmd.Start()
	runtime.UnlockOSThread()
	if err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(exited)
	}()
	s.onClose(func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM) // an error says that it has ended
		select {
		case <-exited:
		case <-time.After(undoTimeout):
			_ = cmd.Process.Kill()
			<-exited
		}
		if !cmd.ProcessState.Success() {
			return fmt.Errorf("the server with an outside ended with %v", cmd.ProcessState)
		}
		return nil
	})
	// By its socket: its addresses are not in our namespace.
	t := &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(dir, "glovebox.sock"))
	}}
	s.onClose(func() error { t.CloseIdleConnections(); return nil })
	c, err := client.New("http://glovebox", "", client.WithHTTPClient(&http.Client{Transport: t}))
	if err != nil {
		return nil, err
	}
	err = await(ctx, readyTimeout, func() (bool, error) {
		select {
		case <-exited:
			said, _ := os.ReadFile(log.Name())
			return false, fmt.Errorf("the server with an outside ended: %v\n%s", cmd.ProcessState, said)
		default:
		}
		h, err := c.Health(ctx)
		return err == nil && h.Ready(), nil // an error is one of a server that does not listen yet
	})
	return c, err
}
