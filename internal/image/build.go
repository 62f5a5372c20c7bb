package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/glovebox-dev/glovebox/internal/layer"
)

// BuildOptions of Build.
type BuildOptions struct {
	// Force builds although the image is there.
	Force    bool
	Progress ProgressFunc
}

// Build makes the default image by its recipe, which needs root, the tools
// mmdebstrap and npm, and the network that they are configured for. It
// returns what is there already unless forced. The error wraps ErrMissingTool
// where a tool has to be installed first.
func (s *Store) Build(ctx context.Context, o BuildOptions) (Image, error) {
	o.Progress = o.Progress.serial()
	key := "build"
	if o.Force {
		key = "rebuild"
	}
	return s.single(ctx, key, func(ctx context.Context) (Image, error) {
		if img, err := s.Get(DefaultReference); err == nil && !o.Force {
			return img, nil
		}
		img, err := s.build(ctx, o.Progress)
		return img, s.explain("build", DefaultReference, err)
	})
}

// single runs work once for all who ask for it at the same time. It goes on
// when one of them gives up, and ends when the store is closed.
func (s *Store) single(ctx context.Context, key string, work func(context.Context) (Image, error)) (Image, error) {
	s.closing.RLock()
	if s.ctx.Err() != nil {
		s.closing.RUnlock()
		return Image{}, errors.New("image store is closed")
	}
	s.running.Add(1)
	s.closing.RUnlock()
	ch := s.flights.DoChan(key, func() (any, error) {
		return work(s.ctx)
	})
	select {
	case r := <-ch:
		s.running.Done()
		if r.Err != nil {
			return Image{}, r.Err
		}
		return r.Val.(Image), nil
	case <-ctx.Done():
		go func() { // the store's Close waits for the work, not for the caller
			<-ch
			s.running.Done()
		}()
		return Image{}, ctx.Err()
	}
}

func (s *Store) build(ctx context.Context, progress ProgressFunc) (Image, error) {
	if os.Geteuid() != 0 {
		return Image{}, fmt.Errorf("the recipe needs root: run it with sudo")
	}
	if err := checkTools(); err != nil {
		return Image{}, err
	}
	nodePackage, ok := nodePackages[runtime.GOARCH]
	if !ok {
		return Image{}, fmt.Errorf("no Node.js package for %s", runtime.GOARCH)
	}
	dir, err := s.scratch.TempDir()
	if err != nil {
		return Image{}, err
	}
	defer os.RemoveAll(dir)
	t, err := s.newTree()
	if err != nil {
		return Image{}, err
	}
	defer t.Close()
	var node, npm string
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { // beside the bootstrap, which takes longer
		if node, err = fetchPackage(gctx, dir, nodePackage, progress); err == nil {
			npm, err = fetchPackage(gctx, dir, npmPackage, progress)
		}
		return err
	})
	group.Go(func() error { return bootstrap(gctx, t, dir, progress) })
	if err := group.Wait(); err != nil {
		return Image{}, err
	}
	if err := addNode(ctx, t, node, npm); err != nil {
		return Image{}, err
	}
	if err := customise(t); err != nil {
		return Image{}, err
	}
	c, err := universalConfig(t)
	if err != nil {
		return Image{}, err
	}
	return s.finish(ctx, DefaultReference, "", t, c, progress)
}

func customise(t *layer.Tree) error {
	for _, name := range unwanted {
		if err := t.Remove(name); err != nil {
			return err
		}
	}
	for _, e := range universalEntries() {
		if err := t.Add(e); err != nil {
			return err
		}
	}
	return nil
}
