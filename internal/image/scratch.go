package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// scratch is a directory of this process for what is half-made. The lock on
// it goes with the process, so that the next one can tell leftovers from the
// work of another.
type scratch struct {
	dir  string
	lock *os.File
}

// openScratch makes a directory of our own below parent and removes those
// whose owner is gone.
func openScratch(parent string) (*scratch, error) {
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
			return &scratch{dir: dir, lock: f}, nil
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

func (s *scratch) close() error {
	return errors.Join(os.RemoveAll(s.dir), s.lock.Close())
}

// tempDir makes a directory; the caller removes it.
func (s *scratch) tempDir() (string, error) { return os.MkdirTemp(s.dir, "") }

// install writes a file under a temporary name and moves it to path when it
// is complete and on disk. Nothing is left of a failed attempt.
func (s *scratch) install(path string, mode os.FileMode, fill func(*os.File) error) error {
	return s.installAs(mode, func(f *os.File) (string, error) { return path, fill(f) })
}

// installAs is install for files whose name follows from their content.
func (s *scratch) installAs(mode os.FileMode, fill func(*os.File) (path string, err error)) error {
	f, err := os.CreateTemp(s.dir, "")
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
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
