package gvisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/savedtree"
)

const (
	pageSize = 4096
	// overlayPrefix is of the attributes in which the guest's overlay keeps
	// its own notes; the guest itself cannot set them.
	overlayPrefix = "user.overlay."
	opaqueXattr   = overlayPrefix + "opaque"
)

// savedDisk is a frozen or ended machine's writable layer: the tree that its
// kernel wrote, and the file with the contents.
type savedDisk struct {
	tree, content *os.File
	limit         int64 // of all contents together, in bytes
	ahead         readAhead
	done          func() // set before the disk is handed out
}

// Done implements driver.Disk.
func (d *savedDisk) Done() { d.done() }

func (d *savedDisk) close() {
	for _, f := range []*os.File{d.tree, d.content} {
		if f != nil {
			f.Close()
		}
	}
}

// readAhead reads a file in larger pieces than it is asked for: small files
// lie side by side, and one system call for many is half of what it takes to
// copy them.
type readAhead struct {
	f   *os.File
	buf []byte
	off int64 // of buf in f
}

const readAheadSize = 256 << 10

// ReadAt implements io.ReaderAt.
func (r *readAhead) ReadAt(b []byte, off int64) (int, error) {
	if len(b) >= readAheadSize/4 {
		return r.f.ReadAt(b, off)
	}
	if off < r.off || off+int64(len(b)) > r.off+int64(len(r.buf)) {
		if r.buf == nil {
			r.buf = make([]byte, readAheadSize)
		}
		n, err := r.f.ReadAt(r.buf[:readAheadSize], off)
		if r.buf, r.off = r.buf[:n], off; n < len(b) && err != nil {
			return copy(b, r.buf), err
		}
	}
	return copy(b, r.buf[off-r.off:]), nil
}

// Entries implements driver.Disk.
func (d *savedDisk) Entries(yield func(driver.DiskEntry) error) error {
	fi, err := d.tree.Stat()
	if err != nil {
		return fmt.Errorf("read the saved tree: %w", err)
	}
	r, err := savedtree.NewReader(io.NewSectionReader(d.tree, 0, fi.Size()), fi.Size())
	if err != nil {
		return fmt.Errorf("read the saved tree: %w", err)
	}
	left := d.limit
	counted := map[uint64]bool{} // files of several names
	for first := true; ; first = false {
		n, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && first:
			return fmt.Errorf("read the saved tree: %w: it is empty", savedtree.ErrBad)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the saved tree: %w", err)
		case first != (n.Path == ""):
			return fmt.Errorf("read the saved tree: %w: the root is not first, or not alone", savedtree.ErrBad)
		}
		e := d.entry(n)
		if !counted[e.Inode] {
			for _, x := range n.Extents {
				// The guest cannot write more; so that a kernel that lies
				// cannot make much of little.
				if left -= x.End - x.Start; left < -pageSize {
					return fmt.Errorf("read the saved tree: %w: more than %d bytes of content", savedtree.ErrBad, d.limit)
				}
			}
		}
		if e.Inode != 0 {
			counted[e.Inode] = true
		}
		if err := yield(e); err != nil {
			return err
		}
	}
}

func (d *savedDisk) entry(n *savedtree.Node) driver.DiskEntry {
	e := driver.DiskEntry{
		Path: n.Path, Mode: n.Mode, UID: n.UID, GID: n.GID, ModTime: time.Unix(n.Sec, int64(n.Nsec)),
		Target: n.Target,
	}
	switch n.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Size, e.Content = n.Size, &savedFile{content: &d.ahead, size: n.Size, extents: n.Extents}
		for _, x := range n.Extents {
			if x.Start < n.Size {
				e.Extents = append(e.Extents, driver.Extent{Offset: x.Start, Length: min(x.End, n.Size) - x.Start})
			}
		}
	case unix.S_IFCHR, unix.S_IFBLK:
		e.Major, e.Minor = n.Major, n.Minor
	}
	if n.Links > 1 && n.Mode&unix.S_IFMT != unix.S_IFDIR {
		e.Inode = n.Inode
	}
	for _, x := range n.Xattrs {
		switch {
		case x.Name == opaqueXattr:
			e.Opaque = string(x.Value) == "y"
		case strings.HasPrefix(x.Name, overlayPrefix):
		default:
			if e.Xattrs == nil {
				e.Xattrs = map[string][]byte{}
			}
			e.Xattrs[x.Name] = x.Value
		}
	}
	return e
}

// savedFile reads one file's content out of the layer's file.
type savedFile struct {
	content io.ReaderAt
	size    int64
	extents []savedtree.Extent
}

// ReadAt implements io.ReaderAt.
func (f *savedFile) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	if off >= f.size {
		return 0, io.EOF
	}
	var eof error
	if int64(len(b)) > f.size-off {
		b, eof = b[:f.size-off], io.EOF
	}
	done := 0
	i := sort.Search(len(f.extents), func(i int) bool { return f.extents[i].End > off })
	for done < len(b) {
		at := off + int64(done)
		rest := b[done:]
		if i == len(f.extents) || f.extents[i].Start > at { // a hole
			if i < len(f.extents) {
				rest = rest[:min(int64(len(rest)), f.extents[i].Start-at)]
			}
			clear(rest)
			done += len(rest)
			continue
		}
		x := f.extents[i]
		rest = rest[:min(int64(len(rest)), x.End-at)]
		n, err := f.content.ReadAt(rest, x.At+at-x.Start)
		if errors.Is(err, io.EOF) { // the layer's file ends in a hole
			clear(rest[n:])
		} else if err != nil {
			return done + n, fmt.Errorf("read the saved disk: %w", err)
		}
		done += len(rest)
		i++
	}
	return done, eof
}
