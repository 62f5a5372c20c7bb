package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/layer"
)

// Merge makes one layer of several, bottom first, that are stacked on base. It
// shows what they show together; the layers stay as they are.
func (s *Store) Merge(ctx context.Context, base, layers []image.Layer) (image.Layer, error) {
	l, err := s.merge(ctx, base, layers)
	if err != nil {
		return image.Layer{}, fmt.Errorf("merge %d layers: %w", len(layers), explain(err))
	}
	return l, nil
}

func (s *Store) merge(ctx context.Context, base, layers []image.Layer) (_ image.Layer, err error) {
	if len(layers) == 0 {
		return image.Layer{}, errors.New("there are none")
	}
	extras, err := s.Extras(append(append([]image.Layer{}, base...), layers...))
	if err != nil {
		return image.Layer{}, err
	}
	below, err := openStack(base)
	if err != nil {
		return image.Layer{}, err
	}
	defer below.Close()
	upper, err := openStack(layers)
	if err != nil {
		return image.Layer{}, err
	}
	defer upper.Close()
	t, err := layer.New(layer.Options{SpoolDir: s.scratch.Path(), Limits: s.opts.Limits, Unique: true, Room: s.opts.Reserve.Check})
	if err != nil {
		return image.Layer{}, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	m := &merger{ctx: ctx, upper: upper, below: below, tree: t, first: map[[2]uint64]string{}}
	root, err := upper.Root()
	if err != nil {
		return image.Layer{}, err
	}
	if root != nil {
		lower, err := below.Root()
		if err != nil {
			return image.Layer{}, err
		}
		if err := m.dir("/", root, lower); err != nil {
			return image.Layer{}, err
		}
	}
	return s.install(func(f *os.File) (layer.Info, error) { return t.Write(ctx, f) }, newRecord(extras))
}

// merger walks the layers to be merged beside those below.
type merger struct {
	ctx          context.Context
	upper, below *layer.Stack
	tree         *layer.Tree
	first        map[[2]uint64]string // names of files with several, by ID
}

// dir adds a directory and all that is in it; low is what the layers below
// have there, if it is a directory too.
func (m *merger) dir(p string, d, low *layer.File) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	if err := m.put(p, d); err != nil {
		return err
	}
	return m.upper.Names(d, true, func(name string) error { return m.name(path.Join(p, name), name, d, low) })
}

// name adds one name that at least one of the layers has, perhaps as a
// whiteout.
func (m *merger) name(p, name string, d, low *layer.File) error {
	f, err := m.upper.Child(d, name)
	if err != nil {
		return err
	}
	lf, err := m.below.Child(low, name)
	if err != nil {
		return err
	}
	switch {
	case f == nil && lf == nil:
		return nil // a whiteout that hides nothing
	case f == nil:
		return m.tree.Add(whiteout(p))
	case !f.IsDir():
		return m.put(p, f)
	case lf == nil || !lf.IsDir():
		return m.dir(p, f, nil)
	case f.Closed():
		return m.closedDir(p, f, lf)
	}
	return m.dir(p, f, lf)
}

// closedDir adds a directory that one of the layers made in place of what was
// there, so that nothing of the layers below is seen through: in one layer
// that takes a whiteout for each name.
func (m *merger) closedDir(p string, f, low *layer.File) error {
	if err := m.dir(p, f, nil); err != nil {
		return err
	}
	return m.hide(p, f, low)
}

// hide whites out what low has in a directory and f has not.
func (m *merger) hide(p string, f, low *layer.File) error {
	return m.below.Names(low, false, func(name string) error {
		at := path.Join(p, name)
		k, err := m.upper.Child(f, name)
		if err != nil {
			return err
		}
		if k == nil {
			return m.tree.Add(whiteout(at))
		}
		lk, err := m.below.Child(low, name)
		if err != nil || lk == nil || !k.IsDir() || !lk.IsDir() {
			return err
		}
		return m.hide(at, k, lk)
	})
}

// put adds what f is, without what is in it.
func (m *merger) put(p string, f *layer.File) error {
	if f.Links() > 1 && !f.IsDir() {
		if first, ok := m.first[f.ID()]; ok {
			return m.tree.Link(p, first)
		}
		m.first[f.ID()] = p
	}
	e := layer.Entry{Path: p, Mode: f.Mode(), UID: f.UID(), GID: f.GID(), MTime: f.ModTime()}
	var err error
	switch e.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		e.Target, err = f.Readlink()
	case unix.S_IFREG:
		e.Size = f.Size()
		if e.ContentAt, err = m.upper.Content(f); err == nil {
			e.Extents, err = m.upper.Extents(f)
		}
	}
	if err != nil {
		return fmt.Errorf("read %q in a layer: %w", p, err)
	}
	return m.tree.Add(e)
}
