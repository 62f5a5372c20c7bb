// Package snapshot keeps what sandboxes have written: it turns a saved
// writable layer into one more immutable layer over those that the sandbox was
// started from, merges and compares such layers, and removes those that nobody
// needs.
//
// A snapshot layer is an EROFS file in the directory of the images' layers,
// named by its digest. What EROFS in the sandbox kernel cannot hold (extended
// attributes, device numbers) is in a record beside it, which is that of the
// whole stack up to this layer. So a layer belongs to the stack that it was
// made for.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/layer"
	"github.com/glovebox-dev/glovebox/internal/scratch"
)

// ErrNotFound: no layer of this digest is here, or not all of it.
var ErrNotFound = errors.New("no such layer")

// Options of a store.
type Options struct {
	// Limits bound one layer; by default those of package layer, but for the
	// bytes, which a disk's own size bounds.
	Limits layer.Limits
	Logger *slog.Logger // slog.Default if nil
	// Reserve of the host's disk, which only a Source with UseReserve touches.
	Reserve *scratch.Reserve
}

// Store keeps layers in DATA/layers. Several processes may open the same
// directory. Safe for concurrent use; Close it after use.
type Store struct {
	dir     string
	opts    Options
	log     *slog.Logger
	scratch *scratch.Dir

	mu    sync.Mutex
	fresh map[string]time.Time // layers that were made here, see Prune
}

// Open prepares the layers of a data directory and removes what an interrupted
// process left half-made.
func Open(dataDir string, opts Options) (*Store, error) {
	dir, err := filepath.Abs(filepath.Join(dataDir, "layers"))
	if err != nil {
		return nil, fmt.Errorf("open snapshot store: %w", err)
	}
	s := &Store{dir: dir, opts: opts, log: opts.Logger, fresh: map[string]time.Time{}}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.opts.Limits.Bytes == 0 {
		s.opts.Limits.Bytes = math.MaxInt64
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open snapshot store: %w", err)
	}
	if s.scratch, err = scratch.Open(filepath.Join(dir, "partial")); err != nil {
		return nil, fmt.Errorf("open snapshot store: %w", err)
	}
	return s, nil
}

// Close removes what is still half-made. No other call may be running.
func (s *Store) Close() error { return s.scratch.Close() }

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func (s *Store) layerPath(digest string) string {
	return filepath.Join(s.dir, strings.Replace(digest, ":", "-", 1)+".erofs")
}

func (s *Store) recordPath(digest string) string {
	return filepath.Join(s.dir, strings.Replace(digest, ":", "-", 1)+".json")
}

// Load finds a snapshot's layer by its digest. The error wraps ErrNotFound
// where there is none, or not all of it.
func (s *Store) Load(digest string) (image.Layer, error) {
	r, err := s.record(digest)
	if err != nil {
		return image.Layer{}, err
	}
	l := r.layer(digest, s.layerPath(digest))
	fi, err := os.Stat(l.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return image.Layer{}, fmt.Errorf("layer %s: %w: its file is gone", digest, ErrNotFound)
	case err != nil:
		return image.Layer{}, fmt.Errorf("layer %s: %w", digest, err)
	case fi.Size() != l.Size:
		return image.Layer{}, fmt.Errorf("layer %s: %w: its file has %d bytes instead of %d", digest, ErrNotFound, fi.Size(), l.Size)
	}
	return l, nil
}

// Verify reads a layer again and compares it with its digest. The error wraps
// layer.ErrArchive if it has changed on disk.
func (s *Store) Verify(ctx context.Context, digest string) error {
	r, err := s.record(digest)
	if err != nil {
		return err
	}
	f, err := os.Open(s.layerPath(digest))
	if err != nil {
		return fmt.Errorf("verify layer %s: %w", digest, err)
	}
	defer f.Close()
	info := layer.Info{Digest: digest, Size: r.Size, Meta: r.Meta, Holes: r.Holes}
	if err := info.Verify(ctx, f); err != nil {
		return fmt.Errorf("verify layer %s: %w", digest, err)
	}
	return nil
}

// install writes a layer and its record, and returns when both are on disk for
// good. The record comes first: it alone is no layer, and a layer's file
// without one would be nobody's.
func (s *Store) install(fill func(*os.File) (layer.Info, error), r *record) (image.Layer, error) {
	var l image.Layer
	err := s.scratch.InstallAs(0o444, func(f *os.File) (string, error) {
		info, err := fill(f)
		if err != nil {
			return "", err
		}
		r.Size, r.Meta, r.Holes = info.Size, info.Meta, info.Holes
		l = r.layer(info.Digest, s.layerPath(info.Digest))
		s.hold(l.Digest)
		return l.Path, s.writeRecord(l.Digest, r)
	})
	if err != nil {
		return image.Layer{}, err
	}
	return l, nil
}
