package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/specutils"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// maxExecOutput bounds what Exec returns, in bytes; the rest is dropped.
const maxExecOutput = 1 << 20

const (
	// execGrace is how long after the end of a command its output still
	// counts, when something else holds it open.
	execGrace = time.Second
	// killTimeout bounds the call that kills a command.
	killTimeout = 2 * time.Second
)

// Exec implements driver.Machine. When ctx ends, the process is killed.
func (m *Machine) Exec(ctx context.Context, argv []string) ([]byte, int, error) {
	out, code, err := m.exec(ctx, argv)
	if err != nil {
		return out, code, fmt.Errorf("execute in machine %s: %w", m.spec.ID, m.ended(err))
	}
	return out, code, nil
}

func (m *Machine) exec(ctx context.Context, argv []string) ([]byte, int, error) {
	if len(argv) == 0 {
		return nil, 0, errors.New("no command")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	caps, err := specutils.Capabilities(false, &specs.LinuxCapabilities{Bounding: guestCaps, Effective: guestCaps, Permitted: guestCaps})
	if err != nil {
		w.Close()
		return nil, 0, err
	}
	var pid int32
	err = call(ctx, m.dir, boot.ContMgrExecuteAsync, &control.ExecArgs{
		Argv: argv, WorkingDirectory: "/", ContainerID: containerID, Capabilities: caps,
		Envv:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
		FilePayload: control.NewFilePayload(map[int]*os.File{0: m.d.null, 1: w, 2: w}, nil),
	}, &pid)
	w.Close()
	if err != nil {
		return nil, 0, err
	}
	output := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(r, maxExecOutput))
		_, _ = io.Copy(io.Discard, r)
		output <- b
	}()
	var status uint32
	err = call(ctx, m.dir, boot.ContMgrWaitPID, &boot.WaitPIDArgs{PID: pid, CID: containerID}, &status)
	if err != nil {
		m.killGuest(pid)
		r.Close()
		return <-output, 0, err
	}
	// A child of the command's may hold its output open.
	_ = r.SetReadDeadline(time.Now().Add(execGrace))
	b := <-output
	ws := unix.WaitStatus(status)
	if ws.Signaled() {
		return b, 128 + int(ws.Signal()), nil
	}
	return b, ws.ExitStatus(), nil
}

// killGuest ends a process inside; pid is as the kernel numbers it.
func (m *Machine) killGuest(pid int32) {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	// An error means that it has ended, or that the machine has.
	_ = call(ctx, m.dir, boot.ContMgrSignal, &boot.SignalArgs{
		CID: containerID, PID: pid, Signo: int32(unix.SIGKILL), Mode: boot.DeliverToProcess,
	}, nil)
}
