package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// runDir is the data directory of one run. It is locked as long as the run
// lives, which is how a later one tells what may be removed.
type runDir struct {
	path string
	lock *os.File
}

// newRunDir makes one, and removes those of runs that were killed.
func (a *app) newRunDir(ctx context.Context) (*runDir, error) {
	parent, err := filepath.Abs(filepath.Join(a.dataDir, "run"))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	// Held while a directory exists that is not locked yet.
	making, err := lockDir(parent, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer making.Close()
	if err := a.sweepRuns(ctx, parent); err != nil {
		a.note("%v", err)
	}
	path, err := os.MkdirTemp(parent, "")
	if err != nil {
		return nil, fmt.Errorf("make a data directory for this run: %w", err)
	}
	lock, err := lockDir(path, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &runDir{path: path, lock: lock}, nil
}

// sweepRuns ends and removes what killed runs left, sandboxes included.
func (a *app) sweepRuns(ctx context.Context, parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	var all error
	for _, e := range entries {
		path := filepath.Join(parent, e.Name())
		lock, err := lockDir(path, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue // its run lives
		}
		d, err := a.openOneShot(ctx, path)
		if err == nil {
			err = d.Close(ctx)
		}
		if err == nil {
			err = os.RemoveAll(path)
		}
		lock.Close()
		if err != nil {
			all = errors.Join(all, fmt.Errorf("clean up after an earlier run: %w", err))
		}
	}
	return all
}

func (d *runDir) remove() error {
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}

// lockDir locks a directory until the file that it returns is closed.
func lockDir(path string, how int) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
