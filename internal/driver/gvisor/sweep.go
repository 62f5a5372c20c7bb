package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// machineDirs are the ids of all machines that have a directory.
func (d *Driver) machineDirs() []string {
	entries, err := os.ReadDir(d.machines)
	if err != nil {
		return nil
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && idPattern.MatchString(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids
}

// Sweep implements driver.Driver. A process is ended only if it is certain to
// be a machine's: by PID, start time and boot, or by its control group.
func (d *Driver) Sweep(ctx context.Context) ([]string, error) {
	ids := map[string]bool{}
	for _, id := range d.machineDirs() {
		ids[id] = true
	}
	if d.parent != nil {
		groups, err := d.parent.List()
		if err != nil {
			return nil, err
		}
		for _, name := range groups {
			if id, ok := strings.CutPrefix(name, groupPrefix); ok {
				ids[id] = true
			}
		}
	}
	var swept []string
	var errs []error
	for id := range ids {
		if d.claim(id) != nil {
			continue // ours, alive
		}
		if err := d.sweep(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("sweep machine %s: %w", id, err))
		} else {
			swept = append(swept, id)
		}
		d.release(id)
	}
	return swept, errors.Join(errs...)
}

func (d *Driver) sweep(ctx context.Context, id string) error {
	dir := filepath.Join(d.machines, id)
	// Without a readable state nothing was started yet.
	if s, err := loadState(dir); err == nil && s.PID > 0 && s.BootID == bootID() {
		if err := endProcess(ctx, s.PID, s.PIDStart); err != nil {
			return err
		}
	}
	if d.parent != nil {
		if err := d.group(id).Remove(ctx); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// endProcess ends the process that had this PID and start time, and waits for
// that; a process that has taken over the PID is left alone.
func endProcess(ctx context.Context, pid int, start uint64) error {
	p, err := findProcess(pid, start)
	if err != nil || p == nil {
		return err
	}
	p.kill()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for process %d to end: %w", pid, ctx.Err())
	}
}

// findProcess finds the process that has this PID and start time, or nil: it
// has ended.
func findProcess(pid int, start uint64) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	// The start time is read after the descriptor was opened: if it is the
	// right one, the descriptor is that process's.
	if now, err := startTime(pid); err != nil || now != start {
		unix.Close(fd)
		return nil, nil //nolint:nilerr // whatever this process is, it is another one
	}
	return newProcess(pid, fd, false)
}
