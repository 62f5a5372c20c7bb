package image

import (
	"context"
	"errors"
)

// Resolve finds the image for a create call. What is not here is fetched or,
// if it is the default image, built, where Options.PullMissing allows it; all
// who wait for the same image share one attempt.
func (s *Store) Resolve(ctx context.Context, ref string, progress ProgressFunc) (Image, error) {
	img, err := s.Get(ref)
	if err == nil || !s.opts.PullMissing || !errors.Is(err, ErrNotFound) {
		return img, err
	}
	full, cerr := Canonical(ref)
	switch {
	case cerr != nil:
		return Image{}, cerr
	case isDigest(full):
		return Image{}, err
	case full == DefaultReference:
		return s.Build(ctx, BuildOptions{Progress: progress})
	}
	return s.Pull(ctx, full, PullOptions{Progress: progress})
}

// tag gives the image of this digest another name.
func (s *Store) tag(digest, name string) (Image, error) {
	img, err := s.Get(digest)
	if err != nil {
		return Image{}, err
	}
	img.Reference = name
	return s.save(img, name)
}
