package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Link takes over all images of another data directory, which is only read:
// by hard links where both are on one file system, by copies elsewhere.
func (s *Store) Link(dir string) error {
	from := &Store{dir: dir, log: s.log}
	recs, err := from.records()
	if err != nil {
		return fmt.Errorf("link images of %s: %w", dir, err)
	}
	for i := len(recs) - 1; i >= 0; i-- { // the last tagged keeps its names
		r := recs[i]
		for _, l := range r.Layers {
			if err := s.linkLayer(l); err != nil {
				return s.explain("link", r.Reference, err)
			}
		}
		if _, err := s.save(r.Image, r.Names...); err != nil {
			return s.explain("link", r.Reference, err)
		}
	}
	return nil
}

func (s *Store) linkLayer(l Layer) error {
	to := s.layerPath(l.Digest)
	err := os.Link(l.Path, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	return s.scratch.Install(to, 0o444, func(out *os.File) error {
		in, err := os.Open(l.Path)
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = io.Copy(out, in)
		return err
	})
}

// Verify reads an image's layers again and compares their digests. The error
// wraps ErrArchive if a file has changed.
func (s *Store) Verify(ctx context.Context, ref string) error {
	img, err := s.Get(ref)
	if err != nil {
		return err
	}
	for _, l := range img.Layers {
		f, err := os.Open(l.Path)
		if err != nil {
			return fmt.Errorf("verify image %s: %w", img.Reference, err)
		}
		h := sha256.New()
		_, err = io.Copy(h, ctxReader{ctx, f})
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("verify image %s: %w", img.Reference, err)
		}
		if digestPrefix+hex.EncodeToString(h.Sum(nil)) != l.Digest {
			return fmt.Errorf("verify image %s: %w: %s has changed on disk: remove the image and fetch it again", img.Reference, ErrArchive, l.Path)
		}
	}
	return nil
}
