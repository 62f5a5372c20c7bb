// Package scratch is the place for what is half-made in a directory that
// several processes share: whatever a dead one left there goes, and what is
// complete moves to its place at once and for good.
package scratch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Dir is a directory of this process for what is half-made. The lock on
// it goes with the process, so that the next one can tell leftovers from the
// work of another. Safe for concurrent use.
type Dir struct {
	path string
	lock *os.File
}

// Open makes a directory of our own below parent and removes those whose
// owner is gone. Close it.
func Open(parent string) (*Dir, error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	old, err := os.ReadDir(parent)
	if err != nil {
		return nil, err
	}
	for _, e := range old {
		dir := filepath.Join(parent, e.Name())
		if f, err := lockDir(dir); err == nil {
			err = errors.Join(os.RemoveAll(dir), f.Close())
			if err != nil {
				return nil, fmt.Errorf("remove leftovers: %w", err)
			}
		}
	}
	for {
		dir, err := os.MkdirTemp(parent, "")
		if err != nil {
			return nil, err
		}
		f, err := lockDir(dir)
		if err != nil {
			continue // another process took it for a leftover
		}
		if _, err := os.Stat(dir); err == nil {
			return &Dir{path: dir, lock: f}, nil
		}
		f.Close()
	}
}

// lockDir opens and locks a directory, or fails if another process has it.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// Close removes the directory and all that is still in it.
func (d *Dir) Close() error {
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}

// Path is where the directory is.
func (d *Dir) Path() string { return d.path }

// TempDir makes a directory; the caller removes it.
func (d *Dir) TempDir() (string, error) { return os.MkdirTemp(d.path, "") }

// Install writes a file under a temporary name and moves it to path when it
// is complete and on disk. Nothing is left of a failed attempt.
func (d *Dir) Install(path string, mode os.FileMode, fill func(*os.File) error) error {
	return d.InstallAs(mode, func(f *os.File) (string, error) { return path, fill(f) })
}

// InstallAs is Install for files whose name follows from their content.
func (d *Dir) InstallAs(mode os.FileMode, fill func(*os.File) (path string, err error)) error {
	f, err := os.CreateTemp(d.path, "")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	path, err := fill(f)
	if err != nil {
		return err
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// Sync makes the names in a directory last.
func Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
