package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cleanup"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/glovebox-dev/glovebox/internal/cgroup"
	"github.com/glovebox-dev/glovebox/internal/driver"
)

// What the host gives a machine beyond what was promised to its guest.
const (
	// overheadBytes and overheadShare (of the guest's memory, one in so
	// many) are for the kernel itself: its heap, the stub processes' page
	// tables, connections. Measured: see docs/decisions/0002.
	overheadBytes = 96 << 20
	overheadShare = 16
	// hostTasks bounds the host's tasks of one machine: some for the kernel,
	// and a stub process or thread for each of the guest's. The guest cannot
	// reach it with the tasks that one user may have; a kernel that does dies.
	hostTasks = 4*guestTasks + 256
)

const (
	minMemory = 32 << 20
	minDisk   = 1 << 20
	maxVCPUs  = 512
)

var idPattern = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

func validate(s driver.Spec) error {
	switch {
	case !idPattern.MatchString(s.ID):
		return fmt.Errorf("machine id %q: must be 1 to 64 of a-z, 0-9, _ and -", s.ID)
	case s.VCPUs < 1 || s.VCPUs > maxVCPUs:
		return fmt.Errorf("vcpus %d: must be 1 to %d", s.VCPUs, maxVCPUs)
	case s.MemoryBytes < minMemory:
		return fmt.Errorf("memory of %d bytes: must be at least %d", s.MemoryBytes, minMemory)
	case s.DiskBytes < minDisk:
		return fmt.Errorf("disk of %d bytes: must be at least %d", s.DiskBytes, minDisk)
	case len(s.Hostname) > 64:
		return fmt.Errorf("hostname %q: must be at most 64 bytes", s.Hostname)
	}
	return nil
}

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, spec driver.Spec) (driver.Machine, error) {
	m, err := d.start(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("start machine %s: %w", spec.ID, err)
	}
	return m, nil
}

func (d *Driver) start(ctx context.Context, spec driver.Spec) (_ *Machine, err error) {
	if err := validate(spec); err != nil {
		return nil, err
	}
	if d.parent == nil && !d.opt.Unlimited {
		return nil, d.cgroupErr
	}
	if err := d.claim(spec.ID); err != nil {
		return nil, err
	}
	m := &Machine{d: d, spec: spec, dir: filepath.Join(d.machines, spec.ID), done: make(chan struct{}), gone: make(chan struct{})}
	cu := cleanup.Make(func() { d.release(spec.ID) })
	defer cu.Clean()
	for _, s := range []struct {
		name string
		do   func(context.Context, *cleanup.Cleanup) error
	}{
		{"directory", m.makeDir},
		{"state", m.saveFirst},
		{"cgroup", m.makeGroup},
		{"files", m.makeFiles},
		{"cable", m.makeCable},
		{"spawn", m.spawn},
		{"pid", m.savePID},
		{"boot", m.awaitBoot},
		{"run", m.run},
	} {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := s.do(ctx, &cu); err != nil {
			return nil, m.explain(fmt.Errorf("%s: %w", s.name, err))
		}
		if err := d.step(s.name); err != nil {
			return nil, err
		}
	}
	cu.Release()
	m.starting.close()
	go m.watch()
	return m, nil
}

// starting is what only the start of a machine needs.
type starting struct {
	control, log, console, guestCable, booted, bootedKernel, armed, lease, image, store *os.File
}

func (s *starting) close() {
	for _, f := range []*os.File{s.control, s.log, s.console, s.guestCable, s.booted, s.bootedKernel, s.armed, s.lease, s.image, s.store} {
		if f != nil {
			f.Close()
		}
	}
	*s = starting{}
}

func (m *Machine) makeDir(_ context.Context, cu *cleanup.Cleanup) error {
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return err
	}
	cu.Add(func() { os.RemoveAll(m.dir) })
	return nil
}

// saveFirst runs before anything exists that outlives this process.
func (m *Machine) saveFirst(context.Context, *cleanup.Cleanup) error {
	m.state = state{Version: stateVersion, ID: m.spec.ID, Spec: m.spec, BootID: bootID()}
	return m.state.save(m.dir)
}

func (m *Machine) makeGroup(_ context.Context, cu *cleanup.Cleanup) error {
	if m.d.parent == nil {
		return nil
	}
	g := m.d.group(m.spec.ID)
	err := g.Create(cgroup.Limits{
		MemoryBytes: m.spec.MemoryBytes + overheadBytes + m.spec.MemoryBytes/overheadShare,
		MilliCPUs:   int64(m.spec.VCPUs) * 1000,
		Tasks:       min(hostTasks, hostPIDs()/2),
	})
	if err != nil {
		return err
	}
	m.group = g
	cu.Add(func() {
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		defer cancel()
		_ = g.Remove(ctx) // Sweep tries again
	})
	return nil
}

func (m *Machine) makeFiles(_ context.Context, cu *cleanup.Cleanup) (err error) {
	s := &m.starting
	cu.Add(s.close)
	if s.image, err = os.Open(m.d.bootImage); err != nil {
		return err
	}
	if s.store, err = namelessFile(m.dir); err != nil {
		return err
	}
	// Ours, to measure it with.
	if m.disk, err = dup(s.store); err != nil {
		return err
	}
	cu.Add(func() { m.disk.Close() })
	if m.state.Disk, err = identify(m.disk); err != nil {
		return err
	}
	if s.log, err = os.OpenFile(filepath.Join(m.dir, kernelLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	// The guest can write to PID 1's standard error: a pipe that nobody
	// empties bounds that, where a file would not.
	if m.console, s.console, err = os.Pipe(); err != nil {
		return err
	}
	cu.Add(func() { m.console.Close() })
	if s.booted, s.bootedKernel, err = os.Pipe(); err != nil {
		return err
	}
	if m.armed, s.armed, err = os.Pipe(); err != nil {
		return err
	}
	cu.Add(func() { m.armed.Close() })
	if s.lease, m.lease, err = os.Pipe(); err != nil {
		return err
	}
	cu.Add(func() { m.lease.Close() })
	s.control, err = bindControl(m.dir)
	return err
}

// namelessFile is a new, empty file in dir's file system, without a name.
func namelessFile(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), "disk"), nil
	}
	f, err := os.CreateTemp(dir, "disk")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

func (m *Machine) makeCable(_ context.Context, cu *cleanup.Cleanup) (err error) {
	m.cable, m.starting.guestCable, err = newCable()
	if err == nil {
		cu.Add(func() { unix.Close(m.cable) })
	}
	return err
}

func (m *Machine) spawn(_ context.Context, cu *cleanup.Cleanup) error {
	s := &m.starting
	spec, confs := guestSpec(m.spec, m.d.bootImage)
	p, err := m.d.spawn(launch{
		dir: m.dir, spec: spec, confs: confs, cpus: m.spec.VCPUs, memory: m.spec.MemoryBytes,
		images: []*os.File{s.image}, filestores: []*os.File{s.store},
		control: s.control, log: s.log, console: s.console, booted: s.bootedKernel, armed: s.armed, lease: s.lease,
		group: m.group, v2: m.group != nil && m.d.parent.Version() == 2,
	})
	if err != nil {
		return err
	}
	m.proc = p
	cu.Add(func() { p.kill(); <-p.done })
	// So that the end of the kernel is the end of these.
	s.bootedKernel.Close()
	s.console.Close()
	s.armed.Close()
	s.bootedKernel, s.console, s.armed = nil, nil, nil
	return nil
}

func (m *Machine) savePID(context.Context, *cleanup.Cleanup) error {
	m.state.PID, m.state.PIDStart = m.proc.pid, m.proc.start
	return m.state.save(m.dir)
}

// awaitBoot waits until the kernel takes calls.
func (m *Machine) awaitBoot(ctx context.Context, _ *cleanup.Cleanup) error {
	stop := context.AfterFunc(ctx, func() { _ = m.starting.booted.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := m.starting.booted.Read(make([]byte, 1)); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return errors.New("the sandbox kernel ended while it booted")
	}
	// Refused in some containers; then the kernel is as likely to go as a
	// guest's process.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", m.proc.pid), []byte(kernelOOMScore), 0)
	return nil
}

// run plugs the cable in and starts PID 1.
func (m *Machine) run(ctx context.Context, _ *cleanup.Cleanup) error {
	if err := call(ctx, m.dir, boot.ContMgrSetNetworkArgs, links("eth0", m.starting.guestCable), nil); err != nil {
		return err
	}
	id := containerID
	return call(ctx, m.dir, boot.ContMgrRootContainerStart, &id, nil)
}
