package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentryhook"
)

// thawTimeout bounds how long a kernel may take to let its guest go on. One
// that does not is of no use any more.
const thawTimeout = 30 * time.Second

// SaveDisk implements driver.Machine.
func (m *Machine) SaveDisk(ctx context.Context, goOn bool, use func(driver.Disk) error) error {
	m.saving.Lock()
	defer m.saving.Unlock()
	disk, err := m.freeze(ctx)
	if err != nil {
		return fmt.Errorf("save the disk of machine %s: %w", m.spec.ID, m.ended(err))
	}
	defer disk.close()
	if goOn {
		err := use(disk)
		return errors.Join(err, m.thaw())
	}
	// Not ended by ctx: half a stop helps nobody.
	if err := m.Stop(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	return use(disk)
}

// freeze stops the guest and returns what it has written. On error the guest
// goes on.
func (m *Machine) freeze(ctx context.Context) (_ *savedDisk, err error) {
	d := &savedDisk{limit: m.spec.DiskBytes}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if d.content, err = dup(m.disk); err != nil {
		return nil, err
	}
	if d.tree, err = namelessFile(m.dir); err != nil {
		return nil, err
	}
	if err := m.awaitArmed(ctx); err != nil {
		return nil, err
	}
	err = m.hook(ctx, sentryhook.Freeze(driver.UpperDir, driver.UpperTree), d.tree)
	if err == nil {
		return d, nil
	}
	if strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		err = fmt.Errorf("%w: the host's disk is full: %w", unix.ENOSPC, err)
	}
	// A call that was given up may still freeze the guest.
	return nil, errors.Join(err, m.thaw())
}

// thaw lets the guest go on. A machine that cannot is ended.
func (m *Machine) thaw() error {
	ctx, cancel := context.WithTimeout(context.Background(), thawTimeout)
	defer cancel()
	err := m.hook(ctx, sentryhook.Thaw())
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
