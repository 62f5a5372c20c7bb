package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// freshFor is how long a new layer is kept although nobody knows it yet: who
// asked for it has to write that down first.
const freshFor = 10 * time.Minute

func (s *Store) hold(digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh[digest] = time.Now()
}

// held reports whether a layer is too new to be removed; kept tells that
// somebody knows it by now.
func (s *Store) held(digest string, kept bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, ok := s.fresh[digest]
	if kept || time.Since(since) > freshFor {
		delete(s.fresh, digest)
		return false
	}
	return ok
}

// Prune removes the snapshots' layers for which keep says false, and returns
// them with what they took up on disk; a dry run only tells. Layers of images
// are not touched. A machine that has a removed layer goes on, but cannot be
// saved any more.
func (s *Store) Prune(ctx context.Context, keep func(digest string) bool, dryRun bool) (removed []Removed, err error) {
	digests, err := s.digests()
	if err != nil {
		return nil, fmt.Errorf("prune layers: %w", err)
	}
	for _, digest := range digests {
		if err := ctx.Err(); err != nil {
			return removed, err
		}
		if kept := keep(digest); s.held(digest, kept) || kept {
			continue
		}
		n, err := s.remove(digest, dryRun)
		if err != nil {
			return removed, fmt.Errorf("prune layer %s: %w", digest, err)
		}
		removed = append(removed, Removed{digest, n})
	}
	return removed, nil
}

// Removed is a layer that is gone, and what it took up on disk.
type Removed struct {
	Digest string
	Bytes  int64
}

// remove takes the layer away before its record, so that it is found again if
// it does not get that far.
func (s *Store) remove(digest string, dryRun bool) (freed int64, err error) {
	for _, p := range []string{s.layerPath(digest), s.recordPath(digest)} {
		n, err := allocated(p)
		if err == nil && !dryRun {
			err = os.Remove(p)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return freed, err
		}
		freed += n
	}
	return freed, nil
}

// digests are those of all records.
func (s *Store) digests() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(s.dir, "sha256-*.json"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range files {
		d := strings.Replace(strings.TrimSuffix(filepath.Base(f), ".json"), "-", ":", 1)
		if digestPattern.MatchString(d) {
			out = append(out, d)
		}
	}
	return out, nil
}

// Usage is what snapshots take up on disk.
type Usage struct {
	Layers int
	Bytes  int64 // without holes, records included
}

// DiskUse measures the layers for which keep is true; all, if it is nil.
func (s *Store) DiskUse(keep func(digest string) bool) (Usage, error) {
	digests, err := s.digests()
	if err != nil {
		return Usage{}, fmt.Errorf("measure snapshots: %w", err)
	}
	var u Usage
	for _, d := range digests {
		if keep != nil && !keep(d) {
			continue
		}
		u.Layers++
		for _, p := range []string{s.layerPath(d), s.recordPath(d)} {
			n, err := allocated(p)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return Usage{}, fmt.Errorf("measure snapshots: %w", err)
			}
			u.Bytes += n
		}
	}
	return u, nil
}

// allocated is what a file takes up on disk, without its holes.
func allocated(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", path, err)
	}
	return st.Blocks * 512, nil
}
