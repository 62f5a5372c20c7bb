package layer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/erofs"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
)

// Stack is a stack of layers as the overlay in a sandbox shows it. The layers
// are mapped, not read. Not safe for concurrent use; Close it.
type Stack struct {
	images []*erofs.Image // topmost first
	files  []*os.File     // the same, to read contents from
	paths  []string       // the same
}

// OpenStack opens the files of layers, bottom first.
func OpenStack(paths ...string) (_ *Stack, err error) {
	s := &Stack{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	for i := len(paths) - 1; i >= 0; i-- {
		f, err := os.Open(paths[i])
		if err != nil {
			return nil, fmt.Errorf("open layer: %w", err)
		}
		s.files, s.paths = append(s.files, f), append(s.paths, paths[i])
		own, err := os.Open(paths[i]) // Image takes its file over
		if err != nil {
			return nil, fmt.Errorf("open layer: %w", err)
		}
		img, err := erofs.OpenImage(own)
		if err != nil {
			own.Close()
			return nil, fmt.Errorf("open layer %s: %w", paths[i], err)
		}
		s.images = append(s.images, img)
	}
	return s, nil
}

// Close unmaps the layers; no File is good afterwards.
func (s *Stack) Close() {
	for _, img := range s.images {
		img.Close()
	}
	for _, f := range s.files {
		f.Close()
	}
}

// File is a file of a stack, whatever its kind.
type File struct {
	in    erofs.Inode // of the topmost layer that has it
	layer int         // which one that is; 0 is the top
	// dirs are what a directory is made of, topmost first.
	dirs   []part
	closed bool
}

// IsDir reports whether there is a directory; also of a nil File.
func (f *File) IsDir() bool { return f != nil && len(f.dirs) > 0 }

// Closed reports whether one of the layers has something else in place of the
// directory, so that nothing from further down is part of it.
func (f *File) Closed() bool { return f.closed }

// Mode is type and permissions as in stat(2).
func (f *File) Mode() uint32 { return uint32(f.in.Mode()) }

// UID is the owner.
func (f *File) UID() uint32 { return f.in.UID() }

// GID is the group.
func (f *File) GID() uint32 { return f.in.GID() }

// ModTime is the time of the last modification.
func (f *File) ModTime() time.Time { return time.Unix(int64(f.in.Mtime()), int64(f.in.MtimeNsec())) }

// Size is the length in bytes of a regular file.
func (f *File) Size() int64 { return int64(f.in.Size()) }

// Links is how many names it has in its layer.
func (f *File) Links() uint32 { return f.in.Nlink() }

// ID is the same for all names of one file, within its Stack.
func (f *File) ID() [2]uint64 { return [2]uint64{uint64(f.layer), f.in.Nid()} }

// Readlink is the target of a symbolic link.
func (f *File) Readlink() (string, error) { return f.in.Readlink() }

// part is a directory in one layer.
type part struct {
	inode erofs.Inode
	layer int
}

// Root is the directory that all layers have; nil if there are no layers.
func (s *Stack) Root() (*File, error) {
	f := &File{}
	for i, img := range s.images {
		in, err := img.Inode(img.RootNid())
		if err != nil {
			return nil, fmt.Errorf("read the root of a layer: %w", err)
		}
		f.dirs = append(f.dirs, part{in, i})
	}
	if len(f.dirs) == 0 {
		return nil, nil
	}
	f.in = f.dirs[0].inode
	return f, nil
}

// Child finds a name in a directory; nil if it has none such. A nil directory
// has no names.
func (s *Stack) Child(d *File, name string) (*File, error) {
	if d == nil {
		return nil, nil
	}
	var f *File
	for i := range d.dirs {
		p := &d.dirs[i]
		nid, err := p.inode.Lookup(name)
		if linuxerr.Equals(linuxerr.ENOENT, err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look up %q in a layer: %w", name, err)
		}
		in, err := s.images[p.layer].Inode(nid)
		if err != nil {
			return nil, fmt.Errorf("read %q in a layer: %w", name, err)
		}
		if !in.IsDir() {
			if f != nil {
				f.closed = true
			} else if !in.IsCharDev() {
				f = &File{in: in, layer: p.layer}
			}
			break
		}
		if f == nil {
			f = &File{in: in, layer: p.layer}
		}
		f.dirs = append(f.dirs, part{in, p.layer})
	}
	return f, nil
}

// Names calls yield for every name in a directory, once each, in no order;
// also for those that are whited out, if that is wanted.
func (s *Stack) Names(d *File, whiteouts bool, yield func(name string) error) error {
	if d == nil {
		return nil
	}
	seen := map[string]bool{".": true, "..": true}
	for i := range d.dirs {
		err := d.dirs[i].inode.IterDirents(func(name string, typ uint8, _ uint64) error {
			if seen[name] {
				return nil
			}
			seen[name] = true
			if typ == charDevice && !whiteouts {
				return nil
			}
			return yield(name)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// charDevice is the type of a whiteout in an EROFS directory.
const charDevice = 3

// Content is that of a regular file, good until Close.
func (s *Stack) Content(f *File) (io.ReaderAt, error) {
	off, err := f.in.DataOffset()
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(s.files[f.layer], int64(off), f.Size()), nil
}

// Extents are the ranges of a regular file that are not holes of its layer's
// file.
func (s *Stack) Extents(f *File) ([]Extent, error) {
	off, err := f.in.DataOffset()
	if err != nil {
		return nil, err
	}
	file, start, end := s.files[f.layer], int64(off), int64(off)+f.Size()
	var out []Extent
	for pos := start; pos < end; {
		from, err := file.Seek(pos, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // nothing but a hole
		}
		if err != nil {
			return nil, err
		}
		to, err := file.Seek(from, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		if from >= end {
			break
		}
		out = append(out, Extent{Offset: from - start, Length: min(to, end) - from})
		pos = to
	}
	return out, nil
}

// Identical reports whether a file of one stack and one of another are the
// same in the same layers, all that is in a directory included. False does
// not mean that they differ.
func Identical(s *Stack, f *File, t *Stack, g *File) bool {
	if !f.IsDir() || !g.IsDir() {
		return !f.IsDir() && !g.IsDir() && s.paths[f.layer] == t.paths[g.layer] && f.in.Nid() == g.in.Nid()
	}
	if len(f.dirs) != len(g.dirs) {
		return false
	}
	for i, p := range f.dirs {
		q := g.dirs[i]
		if s.paths[p.layer] != t.paths[q.layer] || p.inode.Nid() != q.inode.Nid() {
			return false
		}
	}
	return true
}
