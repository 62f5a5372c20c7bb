package snapshot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/layer"
)

// Source is what Save makes a layer of.
type Source struct {
	Disk driver.Disk
	// Lowers are the layers that the disk was written over, bottom first.
	Lowers []image.Layer
	// Skip leaves an entry out, and what is below it. May be nil.
	Skip func(path string) bool
	// Assembled is what the machine's start wrote by itself: files by
	// absolute path with their content, and directories with nil. It is part
	// of a layer but alone not worth one.
	Assembled map[string][]byte
	// UseReserve: what is not kept now is lost.
	UseReserve bool
}

// Save writes the disk's changes as a layer. It is whole and on disk for good
// when Save returns. False: nothing has been changed, and there is no layer.
func (s *Store) Save(ctx context.Context, src Source) (image.Layer, bool, error) {
	l, ok, err := s.save(ctx, src)
	if err != nil {
		return image.Layer{}, false, fmt.Errorf("save snapshot layer: %w", explain(err))
	}
	return l, ok, nil
}

func (s *Store) save(ctx context.Context, src Source) (_ image.Layer, _ bool, err error) {
	below, err := s.Extras(src.Lowers)
	if err != nil {
		return image.Layer{}, false, err
	}
	lower, err := openStack(src.Lowers)
	if err != nil {
		return image.Layer{}, false, err
	}
	defer lower.Close()
	opts := layer.Options{SpoolDir: s.scratch.Path(), Limits: s.opts.Limits, Unique: true}
	if !src.UseReserve {
		opts.Room = s.opts.Reserve.Check
	}
	t, err := layer.New(opts)
	if err != nil {
		return image.Layer{}, false, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	b := &builder{ctx: ctx, src: src, lower: lower, below: below, tree: t, extras: Extras{}, salt: rand.Text()}
	if err := src.Disk.Entries(b.add); err != nil {
		return image.Layer{}, false, err
	}
	if err := b.leave(0); err != nil {
		return image.Layer{}, false, err
	}
	if b.inherit(); !b.changed {
		return image.Layer{}, false, nil
	}
	if err := b.extras.check(); err != nil {
		return image.Layer{}, false, err
	}
	l, err := s.install(func(f *os.File) (layer.Info, error) {
		defer src.Disk.Done() // the rest is up to the host's disk
		return t.Write(ctx, f)
	}, newRecord(b.extras))
	return l, err == nil, err
}

// builder turns a disk's entries into a tree.
type builder struct {
	ctx     context.Context
	src     Source
	lower   *layer.Stack
	below   Extras // of the layers below
	tree    *layer.Tree
	extras  Extras           // of this layer
	files   map[uint64]*file // of several names, by inode; nil before the first
	salt    string           // of this layer's Extra.File
	path    []*dir           // from the root to where the entries are
	skipped string           // directory that is being left out, with a slash
	changed bool             // there is something worth a layer
}

// dir is a directory of the disk while its entries come.
type dir struct {
	name  string      // absolute, with a slash at the end
	lower *layer.File // what is below, if anything
	// opaque: nothing of lower is seen through. What is not in names must be
	// whited out.
	opaque bool
	names  map[string]bool // seen so far, of an opaque one
	same   bool            // as lower is, but for what is in it
	kept   int             // entries in it that are in the tree
}

// add takes one entry; parents come before children, each directory's
// descendants in one piece.
func (b *builder) add(e driver.DiskEntry) error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	if e.Path == "" {
		return b.addRoot(e)
	}
	p := "/" + e.Path
	if b.skipped != "" && strings.HasPrefix(p, b.skipped) {
		return nil
	}
	if b.src.Skip != nil && b.src.Skip(p) {
		b.skipped = p + "/"
		return nil
	}
	d, err := b.enter(p)
	if err != nil {
		return err
	}
	name := path.Base(p)
	if d.names != nil {
		d.names[name] = true
	}
	low, err := b.lower.Child(d.lower, name)
	if err != nil {
		return err
	}
	switch e.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return b.addDir(d, p, e, low)
	case unix.S_IFCHR, unix.S_IFBLK:
		return b.addDevice(d, p, e, low)
	}
	return b.addFile(d, p, e, low)
}

func (b *builder) addRoot(e driver.DiskEntry) error {
	low, err := b.lower.Root()
	if err != nil {
		return err
	}
	b.path = []*dir{{name: "/", lower: low, same: b.same("/", e, low)}}
	if _, ok := b.src.Assembled["/"]; !b.path[0].same && !ok {
		b.changed = true
	}
	return b.put("/", e)
}

// enter finds the directory of p, which is one of the current path, and
// leaves those below it.
func (b *builder) enter(p string) (*dir, error) {
	parent := path.Dir(p)
	if parent != "/" {
		parent += "/"
	}
	for i := len(b.path) - 1; i >= 0; i-- {
		if b.path[i].name == parent {
			return b.path[i], b.leave(i + 1)
		}
	}
	return nil, fmt.Errorf("%q does not come with its directory", p)
}

// leave completes the directories of the current path from the n-th on.
func (b *builder) leave(n int) error {
	for len(b.path) > n {
		d := b.path[len(b.path)-1]
		b.path = b.path[:len(b.path)-1]
		if d.opaque {
			if err := b.whiteOut(d); err != nil {
				return err
			}
		}
		if len(b.path) == 0 {
			return nil
		}
		p := strings.TrimSuffix(d.name, "/")
		if d.same && d.kept == 0 { // copied up for nothing that is left
			delete(b.extras, p)
			if x, ok := b.below[p]; ok {
				b.extras[p] = x
			}
			if err := b.tree.Remove(p); err != nil {
				return err
			}
			continue
		}
		b.path[len(b.path)-1].kept++
	}
	return nil
}

// whiteOut hides what lower layers have in an opaque directory.
func (b *builder) whiteOut(d *dir) error {
	return b.lower.Names(d.lower, false, func(name string) error {
		if d.names[name] {
			return nil
		}
		low, err := b.lower.Child(d.lower, name)
		if err != nil || low == nil {
			return err
		}
		d.kept++
		b.changed = true
		return b.tree.Add(whiteout(d.name + name))
	})
}

func whiteout(p string) layer.Entry { return layer.Entry{Path: p, Mode: unix.S_IFCHR} }

// explain says what to do about an error.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("the host's disk is full: free some space (glovebox prune): %w", err)
	case errors.Is(err, layer.ErrTooLarge):
		return fmt.Errorf("the disk holds more than a snapshot can: %w", err)
	}
	return err
}
