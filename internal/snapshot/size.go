package snapshot

import (
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/layer"
)

const (
	blockSize = 4096
	// sparseFrom is the size from which on a file is asked for its holes.
	sparseFrom = 1 << 20
)

// Size is how many bytes the files that a stack of layers shows take up, in
// whole blocks and without large files' holes.
func (s *Store) Size(layers []image.Layer) (int64, error) {
	stack, err := openStack(layers)
	if err != nil {
		return 0, fmt.Errorf("measure a disk: %w", err)
	}
	defer stack.Close()
	m := &measurer{stack: stack, seen: map[[2]uint64]bool{}}
	root, err := stack.Root()
	if err == nil && root != nil {
		err = m.dir("/", root)
	}
	if err != nil {
		return 0, fmt.Errorf("measure a disk: %w", err)
	}
	return m.bytes, nil
}

type measurer struct {
	stack *layer.Stack
	seen  map[[2]uint64]bool // files of several names
	bytes int64
}

func (m *measurer) dir(p string, d *layer.File) error {
	return m.stack.Names(d, false, func(name string) error {
		f, err := m.stack.Child(d, name)
		at := path.Join(p, name)
		switch {
		case err != nil || f == nil:
			return err
		case f.IsDir():
			return m.dir(at, f)
		case f.Mode()&unix.S_IFMT != unix.S_IFREG || f.Links() > 1 && m.seen[f.ID()]:
			return nil
		}
		if f.Links() > 1 {
			m.seen[f.ID()] = true
		}
		if f.Size() < sparseFrom {
			m.bytes += (f.Size() + blockSize - 1) / blockSize * blockSize
			return nil
		}
		extents, err := m.stack.Extents(f)
		if err != nil {
			return fmt.Errorf("%q: %w", at, err)
		}
		for _, x := range extents {
			m.bytes += (x.Length + blockSize - 1) / blockSize * blockSize
		}
		return nil
	})
}
