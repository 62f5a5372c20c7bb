package snapshot

import (
	"context"
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/layer"
)

// ChangeKind says what has become of a name.
type ChangeKind string

// The kinds of changes.
const (
	Added   ChangeKind = "added"
	Changed ChangeKind = "changed"
	Deleted ChangeKind = "deleted"
)

// Change is one name that is not the same in two stacks of layers.
type Change struct {
	Kind ChangeKind
	Path string // absolute
	// Dir: it is a directory, in the later stack if it is in both.
	Dir bool
}

// Diff calls yield for what is different in stack b from stack a (each with
// the image's layers, bottom first), by path. A directory that is added or
// deleted is followed by all that is in it. What the layers share is not
// read.
func (s *Store) Diff(ctx context.Context, a, b []image.Layer, yield func(Change) error) error {
	if err := s.diff(ctx, a, b, yield); err != nil {
		return fmt.Errorf("compare snapshots: %w", err)
	}
	return nil
}

func (s *Store) diff(ctx context.Context, a, b []image.Layer, yield func(Change) error) (err error) {
	d := &differ{ctx: ctx, yield: yield}
	if d.a, err = openStack(a); err != nil {
		return err
	}
	defer d.a.Close()
	if d.b, err = openStack(b); err != nil {
		return err
	}
	defer d.b.Close()
	if d.ax, err = s.Extras(a); err != nil {
		return err
	}
	if d.bx, err = s.Extras(b); err != nil {
		return err
	}
	d.at, d.bt = d.ax.parents(), d.bx.parents()
	fa, err := d.a.Root()
	if err != nil {
		return err
	}
	fb, err := d.b.Root()
	if err != nil {
		return err
	}
	return d.both("/", fa, fb)
}

type differ struct {
	ctx    context.Context
	a, b   *layer.Stack
	ax, bx Extras
	at, bt map[string][]string // names with extras by directory
	yield  func(Change) error
}

// parents lists the names in x by the directory, with all directories on the
// way.
func (x Extras) parents() map[string][]string {
	out := map[string][]string{}
	seen := map[string]bool{}
	for p := range x {
		for ; p != "/" && !seen[p]; p = path.Dir(p) {
			seen[p] = true
			out[path.Dir(p)] = append(out[path.Dir(p)], path.Base(p))
		}
	}
	return out
}

// both compares what the stacks have at p; nil where one has nothing.
func (d *differ) both(p string, fa, fb *layer.File) error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	ina := fa != nil || d.ax[p].Device != nil
	inb := fb != nil || d.bx[p].Device != nil
	kind := Changed
	switch {
	case !ina && !inb:
		return nil
	case !ina:
		kind = Added
	case !inb:
		kind = Deleted
	default:
		same, err := d.same(p, fa, fb)
		if err != nil {
			return fmt.Errorf("%q: %w", p, err)
		}
		if same {
			kind = ""
		}
	}
	if kind != "" {
		if err := d.yield(Change{Kind: kind, Path: p, Dir: fb.IsDir() || fb == nil && fa.IsDir()}); err != nil {
			return err
		}
	}
	return d.inside(p, fa, fb)
}

// inside compares what is in two directories.
func (d *differ) inside(p string, fa, fb *layer.File) error {
	if !fa.IsDir() && !fb.IsDir() {
		return nil
	}
	if fa.IsDir() && fb.IsDir() && len(d.at[p]) == 0 && len(d.bt[p]) == 0 && layer.Identical(d.a, fa, d.b, fb) {
		return nil
	}
	names := slices.Concat(d.at[p], d.bt[p])
	add := func(name string) error { names = append(names, name); return nil }
	if fa.IsDir() {
		if err := d.a.Names(fa, false, add); err != nil {
			return err
		}
	}
	if fb.IsDir() {
		if err := d.b.Names(fb, false, add); err != nil {
			return err
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		ka, err := child(d.a, fa, name)
		if err != nil {
			return err
		}
		kb, err := child(d.b, fb, name)
		if err != nil {
			return err
		}
		if err := d.both(path.Join(p, name), ka, kb); err != nil {
			return err
		}
	}
	return nil
}

func child(s *layer.Stack, f *layer.File, name string) (*layer.File, error) {
	if !f.IsDir() {
		return nil, nil
	}
	return s.Child(f, name)
}

// same compares two files, but not what is in directories.
func (d *differ) same(p string, fa, fb *layer.File) (bool, error) {
	xa, xb := d.ax[p], d.bx[p]
	if (fa == nil) != (fb == nil) || !equalXattrs(xa.Xattrs, xb.Xattrs) || xa.Device != nil && !xa.same(xb) {
		return false, nil
	}
	if fa == nil {
		return true, nil
	}
	if !fa.IsDir() && layer.Identical(d.a, fa, d.b, fb) {
		return true, nil
	}
	if fa.Mode() != fb.Mode() || fa.UID() != fb.UID() || fa.GID() != fb.GID() || !fa.ModTime().Equal(fb.ModTime()) {
		return false, nil
	}
	switch fa.Mode() & unix.S_IFMT {
	case unix.S_IFLNK:
		ta, err := fa.Readlink()
		if err != nil {
			return false, err
		}
		tb, err := fb.Readlink()
		return ta == tb, err
	case unix.S_IFREG:
		if fa.Size() != fb.Size() {
			return false, nil
		}
		ca, err := d.a.Content(fa)
		if err != nil {
			return false, err
		}
		cb, err := d.b.Content(fb)
		if err != nil {
			return false, err
		}
		return sameContent(ca, cb, fa.Size())
	}
	return true, nil
}
