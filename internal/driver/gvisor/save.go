package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentryhook"
)

const (
	// freezeTimeout bounds how long a kernel may take to tell what its guest
	// has written (measured: 5 µs a file, on a busy host 20).
	freezeTimeout = 2 * time.Minute
	// thawTimeout bounds how long it may take to let the guest go on, a
	// freeze that was given up included. One that does not is of no use any
	// more.
	thawTimeout = 2 * time.Minute
)

// SaveDisk implements driver.Machine.
func (m *Machine) SaveDisk(ctx context.Context, goOn bool, use func([]driver.Disk) error) error {
	m.saving.Lock()
	defer m.saving.Unlock()
	turn := time.Now().UnixNano()
	saved, err := m.freeze(ctx, turn)
	if err != nil {
		return fmt.Errorf("save the disk of machine %s: %w", m.spec.ID, m.ended(err))
	}
	defer saved.close()
	thaw := sync.OnceValue(func() error { return m.thaw(turn) })
	left := len(saved)
	disks := make([]driver.Disk, len(saved))
	for i, d := range saved {
		disks[i] = d
		d.done = sync.OnceFunc(func() {
			if left--; left == 0 && goOn {
				_ = thaw() // asked again below
			}
		})
	}
	if err := use(disks); err != nil || goOn {
		return errors.Join(err, thaw())
	}
	// Not ended by ctx: what is kept must not change any more.
	return m.Stop(context.WithoutCancel(ctx))
}

// savedDisks are those of one moment.
type savedDisks []*savedDisk

func (s savedDisks) close() {
	for _, d := range s {
		d.close()
	}
}

// freeze stops the guest and returns what it has written. On error the guest
// goes on.
func (m *Machine) freeze(ctx context.Context, turn int64) (saved savedDisks, err error) {
	defer func() {
		if err != nil {
			saved.close()
		}
	}()
	var mounts []string
	var trees []*os.File
	for _, u := range m.uppers() {
		d := &savedDisk{limit: u.limit}
		saved = append(saved, d)
		if d.content, err = dup(u.file); err != nil {
			return saved, err
		}
		d.ahead.f = d.content
		if d.tree, err = namelessFile(m.dir); err != nil {
			return saved, err
		}
		mounts, trees = append(mounts, u.mount), append(trees, d.tree)
	}
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	if err := m.awaitArmed(ctx); err != nil {
		return saved, err
	}
	err = m.hook(ctx, sentryhook.Freeze(turn, driver.UpperTree, mounts...), trees...)
	if err == nil {
		return saved, nil
	}
	if strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		err = fmt.Errorf("%w: the host's disk is full: %w", unix.ENOSPC, err)
	}
	// A call that was given up may still freeze the guest.
	return saved, errors.Join(err, m.thaw(turn))
}

// thaw lets the guest go on. A machine that cannot is ended.
func (m *Machine) thaw(turn int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), thawTimeout)
	defer cancel()
	err := m.hook(ctx, sentryhook.Thaw(turn))
	if err == nil {
		return nil
	}
	select {
	case <-m.proc.done: // ended by itself, or stopped
		return nil
	default:
		m.proc.kill()
		return fmt.Errorf("let the guest of machine %s go on: %w", m.spec.ID, err)
	}
}

// hook calls our code in the kernel.
func (m *Machine) hook(ctx context.Context, s seccheck.SessionConfig, files ...*os.File) error {
	return call(ctx, m.dir, boot.ContMgrCreateTraceSession, &boot.CreateTraceSessionArgs{
		Config: s, Force: true, FilePayload: urpc.FilePayload{Files: files},
	}, nil)
}

// dup is another descriptor of an open file.
func dup(f *os.File) (*os.File, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	cerr := conn.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 3) })
	if err = errors.Join(cerr, err); err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
