package snapshot

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/layer"
)

// file is a file of several names.
type file struct {
	first string // in the tree
	same  bool   // all its names are those of one file below, which is the same
	low   [2]uint64
	file  string // Extra.File of that one
	names uint32
}

// findFiles finds the files of several names in the disk that have only been
// copied up: only all of them together can be left out.
func (b *builder) findFiles() error {
	b.files = map[uint64]*file{}
	err := b.src.Disk.Entries(func(e driver.DiskEntry) error {
		p := "/" + e.Path
		switch {
		case b.ctx.Err() != nil:
			return b.ctx.Err()
		case e.Inode != 0 && !isDevice(e.Mode) && (b.src.Skip == nil || !b.src.Skip(p)):
			return b.findFile(p, e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, f := range b.files {
		f.same = f.same && f.names > 1
	}
	return nil
}

// findFile takes one name. What is below counts in opaque directories too:
// they are spelled out, so what is not whited out is seen.
func (b *builder) findFile(p string, e driver.DiskEntry) error {
	f, ok := b.files[e.Inode]
	if !ok {
		f = &file{same: true}
		b.files[e.Inode] = f
	}
	if f.names++; !f.same {
		return nil
	}
	f.same = false
	low, err := b.lookup(p)
	if err != nil || !b.same(p, e, low) {
		return err
	}
	if f.names > 1 {
		f.same = low.ID() == f.low && b.below[p].File == f.file
		return nil
	}
	f.low, f.file = low.ID(), b.below[p].File
	if f.same, err = b.sameData(e, low); err != nil {
		return fmt.Errorf("compare %q: %w", p, err)
	}
	return nil
}

// lookup finds a path in the layers below.
func (b *builder) lookup(p string) (*layer.File, error) {
	f, err := b.lower.Root()
	for part := range strings.SplitSeq(strings.Trim(p, "/"), "/") {
		if err != nil || f == nil {
			return nil, err
		}
		f, err = b.lower.Child(f, part)
	}
	return f, err
}

func isDevice(mode uint32) bool {
	t := mode & unix.S_IFMT
	return t == unix.S_IFCHR || t == unix.S_IFBLK
}
