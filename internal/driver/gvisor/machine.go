package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/cgroup"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentryhook"
)

const (
	// removeTimeout bounds the wait for the last processes of an ended
	// machine to leave its control group.
	removeTimeout = 30 * time.Second
	// endTimeout bounds the wait for the end of a kernel that has stopped
	// answering.
	endTimeout = 5 * time.Second
	// kernelLog is the file of the kernel's standard error: empty, but for
	// a crash.
	kernelLog = "kernel.log"
	// headBytes is how much of what was written comes into an error.
	headBytes = 1024
)

// Machine is a running gVisor sandbox. It implements driver.Machine.
type Machine struct {
	d    *Driver
	spec driver.Spec
	dir  string

	// Set by Start, read-only afterwards.
	group   *cgroup.Group // nil without control groups
	proc    *process
	cable   int
	disk    *os.File // the writable layer's file
	drives  []upper  // those of the drives; guarded by mu
	console *os.File // read end of PID 1's standard error
	armed   *os.File // ends when layers can be mounted
	lease   *os.File // the kernel ends some time after this does

	starting starting // used by Start alone

	saving   sync.Mutex // held by SaveDisk
	stopping atomic.Bool
	done     chan struct{}
	gone     chan struct{} // closed after done: the cable is closed too
	err      error         // set before done is closed

	mu     sync.Mutex
	state  state
	layers bool // MountLayers was called
}

var _ driver.Machine = (*Machine)(nil)

// ID implements driver.Machine.
func (m *Machine) ID() string { return m.spec.ID }

// Cable implements driver.Machine.
func (m *Machine) Cable() int { return m.cable }

// Done implements driver.Machine.
func (m *Machine) Done() <-chan struct{} { return m.done }

// Err implements driver.Machine.
func (m *Machine) Err() error {
	select {
	case <-m.done:
		return m.err
	default:
		return nil
	}
}

// Stop implements driver.Machine.
func (m *Machine) Stop(ctx context.Context) error {
	m.stopping.Store(true)
	m.proc.kill()
	select {
	case <-m.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop machine %s: %w", m.spec.ID, ctx.Err())
	}
}

// MountLayers implements driver.Machine.
func (m *Machine) MountLayers(ctx context.Context, images []string) error {
	if err := m.mountLayers(ctx, images); err != nil {
		return fmt.Errorf("mount layers into machine %s: %w", m.spec.ID, m.ended(err))
	}
	return nil
}

func (m *Machine) mountLayers(ctx context.Context, images []string) error {
	if len(images) == 0 || len(images) > driver.MaxLayers {
		return fmt.Errorf("%d layers: must be 1 to %d", len(images), driver.MaxLayers)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.layers {
		return errors.New("it has its layers already")
	}
	var dest []string
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for i, name := range images {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		files = append(files, f)
		dest = append(dest, driver.LayerDir(i))
	}
	m.layers = true // also when it fails: some may be mounted
	m.state.Layers = images
	if err := m.state.save(m.dir); err != nil {
		return err
	}
	if err := m.awaitArmed(ctx); err != nil {
		return err
	}
	return m.hook(ctx, sentryhook.Layers(dest), files...)
}

// awaitArmed waits until PID 1 has started its first thread, usually the time
// that the agent takes to listen.
func (m *Machine) awaitArmed(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = m.armed.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := m.armed.Read(make([]byte, 1)); err != io.EOF && ctx.Err() != nil {
		return fmt.Errorf("wait for PID 1: %w", ctx.Err())
	}
	return nil
}

// Usage implements driver.Machine. Without control groups it is the kernel
// process's alone.
func (m *Machine) Usage(context.Context) (driver.Usage, error) {
	var u driver.Usage
	if m.group == nil {
		cpu, rss, err := processUsage(m.proc.pid)
		if err != nil {
			return u, m.ended(err)
		}
		u.CPU, u.MemoryBytes = cpu, rss
	} else {
		g, err := m.group.Usage()
		if err != nil {
			return u, m.ended(err)
		}
		u.CPU, u.MemoryBytes = g.CPU, g.MemoryBytes
	}
	fi, err := m.disk.Stat()
	if err != nil {
		return u, m.ended(fmt.Errorf("measure the disk of machine %s: %w", m.spec.ID, err))
	}
	u.DiskBytes = fi.Sys().(*syscall.Stat_t).Blocks * 512 // without the drives
	return u, nil
}

// ended replaces an error that comes of the machine's end by the reason of
// the end.
func (m *Machine) ended(err error) error {
	switch {
	case errors.Is(err, errNoInit):
		m.proc.kill()
		<-m.proc.done
	case errors.Is(err, errNoAnswer):
		// The connection may break some time before the process is gone.
		select {
		case <-m.done:
		case <-time.After(endTimeout):
		}
	}
	select {
	case <-m.proc.done:
		<-m.done
		return m.err
	default:
		return err
	}
}

// watch waits for the machine's end and removes what is left.
func (m *Machine) watch() {
	<-m.proc.done
	m.err = m.reason()
	if err := m.removeAll(); err != nil {
		m.err = errors.Join(m.err, err)
	}
	m.d.release(m.spec.ID)
	close(m.done)
	unix.Close(m.cable)
	close(m.gone)
}

// removeAll removes everything but the cable. What it cannot remove stays
// under the machine's directory, for Sweep.
func (m *Machine) removeAll() error {
	m.disk.Close()
	m.closeDrives()
	m.console.Close()
	m.armed.Close()
	m.lease.Close()
	if m.group != nil {
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		defer cancel()
		if err := m.group.Remove(ctx); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(m.dir); err != nil {
		return fmt.Errorf("remove machine %s: %w", m.spec.ID, err)
	}
	return nil
}

// reason tells why the machine ended. The control group and the logs are
// still there.
func (m *Machine) reason() error {
	if m.stopping.Load() {
		return driver.ErrStopped
	}
	status := m.proc.status
	how := "unknown to a server that did not start it"
	killed := false
	if m.proc.known {
		switch {
		case status.Signaled():
			how = "ended by signal " + status.Signal().String()
			killed = status.Signal() == syscall.SIGKILL
		case status.ExitStatus() > 128:
			// The kernel ends with its PID 1 and passes on how.
			how = "PID 1 was ended by signal " + syscall.Signal(status.ExitStatus()-128).String()
			killed = status.ExitStatus() == 128+int(syscall.SIGKILL)
		default:
			how = fmt.Sprintf("exit status %d", status.ExitStatus())
		}
	}
	if m.group != nil && (killed || !m.proc.known) {
		if u, err := m.group.Usage(); err == nil && u.OOMKills > 0 {
			return fmt.Errorf("%w: the host ended %d processes of machine %s at its limit of %d MiB and overhead",
				driver.ErrOutOfMemory, u.OOMKills, m.spec.ID, m.spec.MemoryBytes>>20)
		}
	}
	return m.explain(fmt.Errorf("%w: %s", driver.ErrKernel, how))
}

// explain adds what the kernel and PID 1 wrote.
func (m *Machine) explain(err error) error {
	var said []string
	if s := head(filepath.Join(m.dir, kernelLog)); s != "" {
		said = append(said, "kernel: "+s)
	}
	if s := m.readConsole(); s != "" {
		said = append(said, "PID 1: "+s)
	}
	if len(said) == 0 {
		return err
	}
	return fmt.Errorf("%w; %s", err, strings.Join(said, "; "))
}

// head is the beginning of a text file, in one line: a Go program that crashes
// says first why, and then where everything was.
func head(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, headBytes))
	return printable(b)
}

// readConsole takes what is in the pipe, without waiting; it is the guest's.
func (m *Machine) readConsole() string {
	if m.console == nil {
		return ""
	}
	conn, err := m.console.SyscallConn()
	if err != nil {
		return ""
	}
	b := make([]byte, headBytes)
	n := 0
	_ = conn.Read(func(fd uintptr) bool {
		n, _ = unix.Read(int(fd), b)
		return true
	})
	return printable(b[:max(n, 0)])
}

// printable is text of unknown origin as one line of printable characters.
func printable(b []byte) string {
	s := strings.TrimSpace(strings.ToValidUTF8(string(b), "?"))
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return '|'
		case r < ' ' || r == 0x7f:
			return ' '
		}
		return r
	}, s)
}
