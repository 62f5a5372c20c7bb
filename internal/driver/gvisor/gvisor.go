// Package gvisor is the driver that runs machines on gVisor, as a library in
// this very binary: the sandbox kernel is the binary executed once more.
//
// A machine is one process tree: the kernel (in new PID, mount, network, IPC
// and UTS namespaces, an empty read-only root, as user nobody, under a seccomp
// filter), and the stub processes in which it runs guest code. Everything it
// needs of the host it gets as open descriptors when it starts: the images, a
// file for the writable layer, one end of the cable, a socket that we call it
// on. It has no way to open anything else.
//
// On disk a machine is DATA/machines/ID: state.json (for the server after
// this one), control.sock, kernel.log. The writable layer's file has no name.
package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"

	"github.com/glovebox-dev/glovebox/internal/cgroup"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/agentbin"
)

// Options of a driver.
type Options struct {
	// DataDir is the server's data directory. The driver owns machines/ and
	// boot/ in it.
	DataDir string
	// Executable is the binary that calls Main first of all; this process's
	// own by default. Everybody must be allowed to execute it.
	Executable string
	// Agent is the ELF executable that becomes PID 1; the embedded one by
	// default.
	Agent []byte
	// Unlimited lets machines start without limits and figures where
	// control groups are not available. For tests and try-outs.
	Unlimited bool
}

// Driver makes gVisor machines. Safe for concurrent use.
type Driver struct {
	opt      Options
	machines string // DATA/machines
	flags    []string

	exe       *os.File // the kernel's executable, by path only
	null      *os.File
	bootImage string
	parent    *cgroup.Parent // nil if cgroupErr
	cgroupErr error

	mu   sync.Mutex
	live map[string]bool // ids that are starting, running or ending

	// fault makes a step of Start fail, in tests.
	fault func(step string) error
}

var _ driver.Driver = (*Driver)(nil)

// New prepares a driver: the boot image, the parent control group, the
// process limits that its machines inherit. Missing control groups are no
// error here but one of Start (and a finding of Check).
func New(opt Options) (d *Driver, err error) {
	d = &Driver{opt: opt, live: map[string]bool{}}
	if opt.DataDir, err = filepath.Abs(opt.DataDir); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	d.machines = filepath.Join(opt.DataDir, "machines")
	if err := os.MkdirAll(d.machines, 0o700); err != nil {
		return nil, fmt.Errorf("make the machines directory: %w", err)
	}
	agent := opt.Agent
	if agent == nil {
		if agent, err = agentbin.Agent(); err != nil {
			return nil, err
		}
	}
	if d.bootImage, err = makeBootImage(context.Background(), filepath.Join(opt.DataDir, "boot"), agent); err != nil {
		return nil, fmt.Errorf("make the boot image: %w", err)
	}
	if d.flags, err = kernelFlags(opt.DataDir); err != nil {
		return nil, err
	}
	exe := opt.Executable
	if exe == "" {
		exe = "/proc/self/exe"
	}
	if d.exe, err = os.OpenFile(exe, unix.O_PATH, 0); err != nil {
		return nil, fmt.Errorf("open the sandbox kernel's executable: %w", err)
	}
	if d.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		d.exe.Close()
		return nil, err
	}
	raiseLimits()
	gvisorLog()
	if d.parent, d.cgroupErr = cgroup.Open(cgroupPath(opt.DataDir)); d.cgroupErr == nil {
		d.cgroupErr = d.parent.Limit(cgroup.Limits{Tasks: hostPIDs() * 3 / 4})
	}
	return d, nil
}

// hostPIDs is how many tasks the host can have at once. Source: proc_sys(5),
// kernel/pid_max. Machines together get less, so that none of them, and no
// number of them, keeps the host from starting processes.
func hostPIDs() int64 {
	const usual = 32768
	b, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return usual
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n <= 0 {
		return usual
	}
	return n
}

// cgroupPath is a path of the data directory's own, so that one server's
// Sweep never touches the machines of another.
func cgroupPath(dataDir string) string {
	sum := sha256.Sum256([]byte(dataDir))
	return "glovebox/" + hex.EncodeToString(sum[:6])
}

// groupPrefix keeps the names of control groups apart from those of the files
// beside them, such as tasks.
const groupPrefix = "machine-"

func (d *Driver) group(id string) *cgroup.Group { return d.parent.Group(groupPrefix + id) }

// raiseLimits lifts two limits that the machines inherit. All kernels run as
// the same user, whose tasks are counted together (the control group bounds
// each one's); and a kernel locks pages for a moment to fault them in. Without
// the right to do so things mostly work, so this is no error.
func raiseLimits() {
	for _, r := range []int{unix.RLIMIT_NPROC, unix.RLIMIT_MEMLOCK} {
		_ = unix.Setrlimit(r, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	}
}

// gvisorLog sends what gVisor's packages log in this process, which would go
// to standard error, to the debug level of the default logger.
var gvisorLog = sync.OnceFunc(func() { log.SetTarget(debugLog{}) })

type debugLog struct{}

func (debugLog) Emit(_ int, _ log.Level, _ time.Time, format string, v ...any) {
	if slog.Default().Enabled(context.Background(), slog.LevelDebug) {
		slog.Debug("gvisor", "text", fmt.Sprintf(format, v...))
	}
}

// Name implements driver.Driver.
func (d *Driver) Name() string { return "gvisor" }

// Close releases what the driver itself holds; running machines stay. No
// other method may be called after it.
func (d *Driver) Close() error {
	var err error
	if d.parent != nil && len(d.machineDirs()) == 0 {
		// Only when empty: rmdir refuses otherwise, which is fine.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = d.parent.Remove(ctx)
	}
	return errors.Join(err, d.exe.Close(), d.null.Close())
}

// claim reserves an id among the live machines.
func (d *Driver) claim(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live[id] {
		return fmt.Errorf("machine %s exists already", id)
	}
	d.live[id] = true
	return nil
}

func (d *Driver) release(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.live, id)
}

// step lets a test make a step of Start fail.
func (d *Driver) step(name string) error {
	if d.fault != nil {
		return d.fault(name)
	}
	return nil
}
