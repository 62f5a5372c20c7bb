package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/glovebox-dev/glovebox/internal/layer"
	"github.com/glovebox-dev/glovebox/internal/scratch"
)

// Options of a store.
type Options struct {
	// PullMissing lets Resolve fetch what is not here, and build the default
	// image.
	PullMissing bool
	// InUse says whether something still needs the image of this digest. Nil
	// means that the store cannot know: nothing is removed but on demand.
	InUse func(digest string) bool
	// Room is asked before something is written; its error, an ENOSPC, ends
	// the work. Nil: the disk alone says when it is full.
	Room func() error
	// Limits bound the images that come in.
	Limits layer.Limits
	Logger *slog.Logger // slog.Default if nil
}

// Store keeps images under one data directory: layers by digest in layers/,
// one JSON record for each image in images/. Several processes may open the
// same directory. A Store is safe for concurrent use; Close it after use.
type Store struct {
	dir     string
	opts    Options
	log     *slog.Logger
	scratch *scratch.Dir
	flights singleflight.Group
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // pulls, builds and imports
	closing sync.RWMutex   // held while running grows or ctx ends

	mu sync.Mutex // serialises changes of records within this process
}

// record is the JSON file of one image.
type record struct {
	Image
	// Names lead to this image. A name that several records claim belongs to
	// the one that was tagged last.
	Names  []string  `json:"names"`
	Tagged time.Time `json:"tagged"`
}

// Open prepares dir and removes what an interrupted process left half-made.
func Open(dir string, opts Options) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	s := &Store{dir: dir, opts: opts, log: opts.Logger}
	if s.log == nil {
		s.log = slog.Default()
	}
	for _, d := range []string{s.layerDir(), s.recordDir()} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("open image store: %w", err)
		}
	}
	if s.scratch, err = scratch.Open(filepath.Join(s.layerDir(), "partial")); err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Close ends running pulls and builds, waits for them and removes what they
// had half-made.
func (s *Store) Close() error {
	s.closing.Lock()
	s.cancel()
	s.closing.Unlock()
	s.running.Wait()
	return s.scratch.Close()
}

func (s *Store) layerDir() string  { return filepath.Join(s.dir, "layers") }
func (s *Store) recordDir() string { return filepath.Join(s.dir, "images") }

func (s *Store) layerPath(digest string) string {
	return filepath.Join(s.layerDir(), strings.Replace(digest, ":", "-", 1)+".erofs")
}

func (s *Store) recordPath(digest string) string {
	return filepath.Join(s.recordDir(), strings.Replace(digest, ":", "-", 1)+".json")
}

// List returns all images, the latest first.
func (s *Store) List() ([]Image, error) {
	recs, err := s.records()
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	out := make([]Image, 0, len(recs))
	for _, r := range recs {
		out = append(out, r.Image)
	}
	return out, nil
}

// Get finds an image by any reference that Canonical accepts, or by digest.
// The error wraps ErrNotFound or ErrInvalidReference.
func (s *Store) Get(ref string) (Image, error) {
	r, err := s.find(ref)
	if err != nil {
		return Image{}, err
	}
	return r.Image, nil
}

// Details are what there is to know about an image.
type Details struct {
	Image
	Names  []string  `json:"names"` // all references that lead to it
	Tagged time.Time `json:"tagged"`
	// DiskBytes is what its layers take up, without holes; other images may
	// share them.
	DiskBytes int64 `json:"diskBytes"`
}

// Inspect tells all about the image that Get finds.
func (s *Store) Inspect(ref string) (Details, error) {
	r, err := s.find(ref)
	if err != nil {
		return Details{}, err
	}
	d := Details{Image: r.Image, Names: r.Names, Tagged: r.Tagged}
	for _, l := range r.Layers {
		n, err := allocated(l.Path)
		if err != nil {
			return Details{}, fmt.Errorf("inspect image %s: %w", ref, err)
		}
		d.DiskBytes += n
	}
	return d, nil
}

func (s *Store) find(ref string) (record, error) {
	name, err := Canonical(ref)
	if err != nil {
		return record{}, err
	}
	if isDigest(name) {
		r, err := s.load(s.recordPath(name))
		if errors.Is(err, fs.ErrNotExist) {
			return record{}, fmt.Errorf("%w: no image on this machine has the digest %s", ErrNotFound, name)
		}
		return r, err
	}
	recs, err := s.records()
	if err != nil {
		return record{}, fmt.Errorf("find image %s: %w", name, err)
	}
	for _, r := range recs {
		if slices.Contains(r.Names, name) {
			r.Reference = name
			return r, nil
		}
	}
	if _, digest, ok := strings.Cut(name, "@"); ok { // as Pinned tells it
		if r, err := s.load(s.recordPath(digest)); err == nil {
			return r, nil
		}
	}
	return record{}, notFound(name)
}

// records loads all images, the last tagged first. A record that cannot be
// read, or whose layers are gone, is logged and left out.
func (s *Store) records() ([]record, error) {
	files, err := filepath.Glob(filepath.Join(s.recordDir(), "sha256-*.json"))
	if err != nil {
		return nil, err
	}
	var out []record
	for _, f := range files {
		r, err := s.load(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			s.log.Warn("image record is unusable", "file", f, "error", err)
			continue
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b record) int {
		if c := b.Tagged.Compare(a.Tagged); c != 0 {
			return c
		}
		return strings.Compare(a.Digest, b.Digest)
	})
	return out, nil
}

func (s *Store) load(file string) (record, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return record{}, err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("image record %s: %w", file, err)
	}
	for i := range r.Layers {
		l := &r.Layers[i]
		if !isDigest(l.Digest) {
			return record{}, fmt.Errorf("image record %s: layer digest %q is malformed", file, l.Digest)
		}
		l.Path = s.layerPath(l.Digest)
		st, err := os.Stat(l.Path)
		if err != nil {
			return record{}, fmt.Errorf("image %s: its layer is gone: remove it with \"glovebox image rm\" and fetch it again: %w", r.Reference, err)
		}
		if st.Size() != l.Size {
			return record{}, fmt.Errorf("image %s: layer %s has %d bytes instead of %d", r.Reference, l.Path, st.Size(), l.Size)
		}
	}
	return r, nil
}

// save stores a record and moves its names away from other images; images
// that lose their last name go, if nothing needs them.
func (s *Store) save(img Image, names ...string) (Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := record{Image: img, Names: names, Tagged: time.Now().UTC()}
	if old, err := s.load(s.recordPath(img.Digest)); err == nil {
		r.Created = old.Created
		set := map[string]bool{}
		for _, n := range append(old.Names, names...) {
			set[n] = true
		}
		r.Names = slices.Sorted(maps.Keys(set))
	}
	if err := s.writeRecord(r); err != nil {
		return Image{}, err
	}
	recs, err := s.records()
	if err != nil {
		return Image{}, err
	}
	for _, old := range recs {
		if old.Digest == img.Digest || !slices.ContainsFunc(old.Names, func(n string) bool { return slices.Contains(names, n) }) {
			continue
		}
		if err := s.untag(old, names...); err != nil {
			return Image{}, err
		}
	}
	r, err = s.load(s.recordPath(img.Digest))
	return r.Image, err
}

func (s *Store) writeRecord(r record) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return s.scratch.Install(s.recordPath(r.Digest), 0o644, func(f *os.File) error {
		_, err := f.Write(append(b, '\n'))
		return err
	})
}
