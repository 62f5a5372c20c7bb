package layer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ApplyDir adds a directory of the host, such as an unpacked root file
// system, with owners, times, hard links and extended attributes. Sockets are
// left out. Whatever the names in it, links are never followed. To read all
// of it takes the rights of its owners.
func (t *Tree) ApplyDir(ctx context.Context, dir string) error {
	t.gen++
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return t.walkHost(ctx, root, ".", map[[2]uint64]string{})
}

// walkHost adds name and, if it is a directory, what is in it.
func (t *Tree) walkHost(ctx context.Context, root *os.Root, name string, seen map[[2]uint64]string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	isDir, err := t.addHostFile(root, name, seen)
	if err != nil || !isDir {
		return err
	}
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	for _, k := range names {
		if err := t.walkHost(ctx, root, filepath.Join(name, k), seen); err != nil {
			return err
		}
	}
	return nil
}

// addHostFile adds one name; seen holds the first name of each inode.
func (t *Tree) addHostFile(root *os.Root, name string, seen map[[2]uint64]string) (isDir bool, err error) {
	path := filepath.Join(root.Name(), name)
	info, err := root.Lstat(name)
	if err != nil {
		return false, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false, fmt.Errorf("stat %s: the owner is not known", path)
	}
	e := hostEntry(name, st)
	if e.Mode&unix.S_IFMT == unix.S_IFSOCK {
		return false, nil // nothing without the process behind it
	}
	if st.Nlink > 1 && !info.IsDir() {
		id := [2]uint64{st.Dev, st.Ino}
		if first, ok := seen[id]; ok {
			return false, t.Link(name, first)
		}
		seen[id] = name
	}
	if e.Xattrs, err = hostXattrs(path); err != nil {
		return false, fmt.Errorf("extended attributes of %s: %w", path, err)
	}
	switch e.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		if e.Target, err = root.Readlink(name); err != nil {
			return false, err
		}
	case unix.S_IFREG:
		f, err := root.Open(name)
		if err != nil {
			return false, err
		}
		defer f.Close()
		e.Content = io.LimitReader(f, e.Size)
	}
	return info.IsDir(), t.Add(e)
}

func hostEntry(name string, st *syscall.Stat_t) Entry {
	e := Entry{
		Path:  name,
		Mode:  st.Mode,
		UID:   st.Uid,
		GID:   st.Gid,
		MTime: time.Unix(st.Mtim.Unix()),
		Major: unix.Major(st.Rdev),
		Minor: unix.Minor(st.Rdev),
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		e.Size = st.Size
	}
	return e
}

// hostXattrs reads the attributes of the file itself, not of what a link
// leads to.
func hostXattrs(path string) (map[string][]byte, error) {
	buf := make([]byte, 64<<10) // the most that Linux allows, for names and for a value
	n, err := unix.Llistxattr(path, buf)
	if err != nil {
		if errors.Is(err, unix.ENOTSUP) {
			err = nil
		}
		return nil, err
	}
	var out map[string][]byte
	for name := range strings.SplitSeq(string(buf[:n]), "\x00") {
		if name == "" || !keepXattr(name) {
			continue
		}
		k, err := unix.Lgetxattr(path, name, buf)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = map[string][]byte{}
		}
		out[name] = bytes.Clone(buf[:k])
	}
	return out, nil
}
