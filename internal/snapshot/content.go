package snapshot

import (
	"bytes"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/layer"
)

// sameContent compares two files of n bytes.
func sameContent(a, b io.ReaderAt, n int64) (bool, error) {
	const piece = 128 << 10
	x, y := make([]byte, min(n, piece)), make([]byte, min(n, piece))
	for off := int64(0); off < n; off += piece {
		k := min(piece, n-off)
		if err := readFull(a, x[:k], off); err != nil {
			return false, err
		}
		if err := readFull(b, y[:k], off); err != nil {
			return false, err
		}
		if !bytes.Equal(x[:k], y[:k]) {
			return false, nil
		}
	}
	return true, nil
}

func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) && errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

func isDir(mode uint32) bool { return mode&unix.S_IFMT == unix.S_IFDIR }

// openStack opens layers, bottom first.
func openStack(layers []image.Layer) (*layer.Stack, error) {
	var paths []string
	for _, l := range layers {
		paths = append(paths, l.Path)
	}
	return layer.OpenStack(paths...)
}
