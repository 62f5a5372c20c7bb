package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentryhook"
)

// Adopt implements driver.Driver.
func (d *Driver) Adopt(ctx context.Context, id string) (driver.Machine, error) {
	m, err := d.adopt(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("take over machine %s: %w", id, err)
	}
	return m, nil
}

func (d *Driver) adopt(ctx context.Context, id string) (_ *Machine, err error) {
	if !idPattern.MatchString(id) {
		return nil, fmt.Errorf("id %q: must be 1 to 64 of a-z, 0-9, _ and -", id)
	}
	m := &Machine{d: d, dir: filepath.Join(d.machines, id), done: make(chan struct{}), gone: make(chan struct{}), layers: true}
	if m.state, err = loadState(m.dir); err != nil {
		return nil, err
	}
	switch m.spec = m.state.Spec; {
	case m.state.Version != stateVersion || m.spec.ID != id:
		return nil, fmt.Errorf("its state is of version %d", m.state.Version)
	case m.state.PID == 0 || m.state.BootID != bootID():
		return nil, errors.New("it does not run any more")
	case d.parent == nil && !d.opt.Unlimited:
		return nil, d.cgroupErr
	}
	if err := d.claim(id); err != nil {
		return nil, err
	}
	cu := cleanup.Make(func() { d.release(id) })
	defer cu.Clean()
	if d.parent != nil {
		m.group = d.group(id)
	}
	for _, step := range []func(context.Context, *cleanup.Cleanup) error{m.findProcess, m.reopenFiles, m.renewLease, m.renewCable} {
		if err := step(ctx, &cu); err != nil {
			return nil, err
		}
	}
	cu.Release()
	go m.watch()
	return m, nil
}

// findProcess finds the kernel, which is not this process's child.
func (m *Machine) findProcess(_ context.Context, cu *cleanup.Cleanup) (err error) {
	m.proc, err = findProcess(m.state.PID, m.state.PIDStart)
	if err != nil {
		return err
	}
	if m.proc == nil {
		return errors.New("its kernel has ended")
	}
	cu.Add(func() { m.proc.pidfd.Close(); <-m.proc.done })
	return nil
}

// reopenFiles finds again what the server before had open. What PID 1 wrote
// to standard error went with it.
func (m *Machine) reopenFiles(_ context.Context, cu *cleanup.Cleanup) (err error) {
	if m.disk, err = reopen(m.proc.pid, m.state.Disk); err != nil {
		return fmt.Errorf("find its disk: %w", err)
	}
	cu.Add(func() { m.disk.Close() })
	cu.Add(m.closeDrives)
	for i, d := range m.state.Drives {
		f, err := reopen(m.proc.pid, d.Disk)
		if err != nil {
			return fmt.Errorf("find drive %d: %w", i, err)
		}
		m.drives = append(m.drives, upper{mount: driver.DriveDir(i), file: f, limit: d.Bytes})
	}
	if m.console, err = os.Open(os.DevNull); err != nil {
		return err
	}
	cu.Add(func() { m.console.Close() })
	if m.armed, err = os.Open(os.DevNull); err != nil {
		return err
	}
	cu.Add(func() { m.armed.Close() })
	return nil
}

// renewLease keeps the kernel for this server, and lets the guest go on where
// it was frozen.
func (m *Machine) renewLease(ctx context.Context, cu *cleanup.Cleanup) error {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirs.Close()
	m.lease = ours
	cu.Add(func() { ours.Close() })
	if err := m.hook(ctx, sentryhook.Lease(), theirs); err != nil {
		return err
	}
	return m.hook(ctx, sentryhook.Thaw(time.Now().UnixNano()))
}

// renewCable plugs a new cable in, as a further interface with the guest's
// address and all its routes. The old one is dead since its other end is.
func (m *Machine) renewCable(ctx context.Context, cu *cleanup.Cleanup) error {
	m.state.Cables++
	if err := m.state.save(m.dir); err != nil {
		return err
	}
	host, guest, err := newCable()
	if err != nil {
		return err
	}
	defer guest.Close()
	m.cable = host
	cu.Add(func() { unix.Close(host) })
	args := links("eth"+strconv.Itoa(m.state.Cables), guest)
	args.LoopbackLinks = nil // it has that
	for i := range args.FDBasedLinks {
		// Said rather than looked up: the filter of a kernel that runs does
		// not let it ask what its descriptors are.
		args.FDBasedLinks[i].PreConfigured, args.FDBasedLinks[i].IsPacket = true, []bool{false}
	}
	return call(ctx, m.dir, plugCable, args, nil)
}

// plugCable is the method that every kernel registers for its own start.
const plugCable = "Network.CreateLinksAndRoutes"

// fileID names an open file on this host.
type fileID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

func identify(f *os.File) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fileID{}, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	return fileID{st.Dev, st.Ino}, nil
}

// reopen opens a file that a process has open.
func reopen(pid int, id fileID) (*os.File, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		var st unix.Stat_t
		if unix.Stat(name, &st) != nil || (fileID{st.Dev, st.Ino}) != id {
			continue
		}
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		if got, err := identify(f); err != nil || got != id { // the descriptor was used again
			f.Close()
			continue
		}
		return f, nil
	}
	return nil, fmt.Errorf("process %d does not have it open", pid)
}
