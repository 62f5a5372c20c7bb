package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Remove takes the name ref away from its image, and the image with it if
// that was its last name or if ref is a digest. The error wraps ErrNotFound,
// or ErrInUse if Options.InUse says so.
func (s *Store) Remove(ref string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.find(ref)
	if err != nil {
		return err
	}
	name, err := Canonical(ref)
	if err != nil {
		return err
	}
	if !isDigest(name) && len(r.Names) > 1 {
		r.Names = slices.DeleteFunc(r.Names, func(n string) bool { return n == name })
		r.Reference = r.Names[0]
		return s.explain("remove", name, s.writeRecord(r))
	}
	if s.opts.InUse != nil && s.opts.InUse(r.Digest) {
		return fmt.Errorf("remove image %s: %w: a sandbox was made from it; remove that first", name, ErrInUse)
	}
	return s.explain("remove", name, s.delete(r))
}

// untag takes names away from a record. An image without a name stays as
// long as something may need its digest.
func (s *Store) untag(r record, names ...string) error {
	r.Names = slices.DeleteFunc(r.Names, func(n string) bool { return slices.Contains(names, n) })
	if len(r.Names) == 0 && s.opts.InUse != nil && !s.opts.InUse(r.Digest) {
		return s.delete(r)
	}
	return s.writeRecord(r)
}

// delete removes a record and the layers that no other record has.
func (s *Store) delete(r record) error {
	if err := os.Remove(s.recordPath(r.Digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	recs, err := s.records()
	if err != nil {
		return err
	}
	shared := map[string]bool{}
	for _, other := range recs {
		for _, l := range other.Layers {
			shared[l.Digest] = true
		}
	}
	for _, l := range r.Layers {
		if shared[l.Digest] {
			continue
		}
		if err := os.Remove(l.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Usage is what images take up on disk, in bytes.
type Usage struct {
	Images int
	// Layers counts each file once, however many images share it.
	Layers int
	Bytes  int64
	// Unused is the part of Bytes that no image refers to.
	Unused int64
}

// DiskUse measures the store.
func (s *Store) DiskUse() (Usage, error) {
	recs, err := s.records()
	if err != nil {
		return Usage{}, fmt.Errorf("measure images: %w", err)
	}
	used := map[string]bool{}
	for _, r := range recs {
		for _, l := range r.Layers {
			used[l.Path] = true
		}
	}
	u := Usage{Images: len(recs)}
	files, err := filepath.Glob(filepath.Join(s.layerDir(), "sha256-*.erofs"))
	if err != nil {
		return Usage{}, fmt.Errorf("measure images: %w", err)
	}
	for _, f := range files {
		if _, err := os.Stat(strings.TrimSuffix(f, ".erofs") + ".json"); err == nil {
			continue // a snapshot's, which has a record beside it
		}
		n, err := allocated(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Usage{}, fmt.Errorf("measure images: %w", err)
		}
		u.Layers++
		u.Bytes += n
		if !used[f] {
			u.Unused += n
		}
	}
	return u, nil
}

// Prune removes images without a name that Options.InUse does not know, and
// layers without an image. It does nothing if InUse is nil.
func (s *Store) Prune() error {
	if s.opts.InUse == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	recs, err := s.records()
	if err != nil {
		return fmt.Errorf("prune images: %w", err)
	}
	for _, r := range recs {
		if len(r.Names) == 0 && !s.opts.InUse(r.Digest) {
			if err := s.delete(r); err != nil {
				return fmt.Errorf("prune image %s: %w", strings.TrimPrefix(r.Digest, digestPrefix), err)
			}
		}
	}
	return nil
}
