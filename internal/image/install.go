package image

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/layer"
)

// newTree makes a tree that spools into this store's directory.
func (s *Store) newTree() (*layer.Tree, error) {
	return layer.New(layer.Options{SpoolDir: s.scratch.Path(), Limits: s.opts.Limits, Room: s.opts.Room})
}

// maxBytes bounds what one image may hold.
func (s *Store) maxBytes() int64 {
	if s.opts.Limits.Bytes > 0 {
		return s.opts.Limits.Bytes
	}
	return layer.DefaultLimits.Bytes
}

// installTree writes the tree as a layer and returns it. A layer that is
// there already is kept as it is.
func (s *Store) installTree(ctx context.Context, t *layer.Tree, progress ProgressFunc) (Layer, error) {
	progress.report(Progress{Stage: StageWrite})
	var l Layer
	err := s.scratch.InstallAs(0o444, func(f *os.File) (string, error) {
		info, err := t.Write(ctx, f)
		if err != nil {
			return "", err
		}
		l = Layer{Digest: info.Digest, Path: s.layerPath(info.Digest), Size: info.Size, Xattrs: t.Xattrs()}
		return l.Path, nil
	})
	if err != nil {
		return Layer{}, err
	}
	progress.report(Progress{Stage: StageWrite, Done: l.Size, Total: l.Size})
	return l, nil
}

// finish turns a filled tree into an image under name. An empty digest is
// replaced by one over layers and config.
func (s *Store) finish(ctx context.Context, name, digest string, t *layer.Tree, c Config, progress ProgressFunc) (Image, error) {
	l, err := s.installTree(ctx, t, progress)
	if err != nil {
		return Image{}, err
	}
	img := Image{Reference: name, Digest: digest, Layers: []Layer{l}, Config: c, Created: time.Now().UTC()}
	if img.Digest == "" {
		if img.Digest, err = contentDigest(img); err != nil {
			return Image{}, err
		}
	}
	return s.save(img, name)
}

// contentDigest names images that have no manifest.
func contentDigest(img Image) (string, error) {
	b, err := json.Marshal(struct {
		Layers []Layer `json:"layers"`
		Config Config  `json:"config"`
	}{img.Layers, img.Config})
	if err != nil {
		return "", fmt.Errorf("digest of image %s: %w", img.Reference, err)
	}
	return digestOf(b), nil
}

// allocated is what a file takes up on disk, without its holes.
func allocated(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", path, err)
	}
	return st.Blocks * 512, nil
}
