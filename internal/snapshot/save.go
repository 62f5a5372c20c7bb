package snapshot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
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
	t, err := layer.New(layer.Options{SpoolDir: s.scratch.Path(), Limits: s.opts.Limits, Unique: true})
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
	if !b.path[0].same {
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

func (b *builder) addDir(parent *dir, p string, e driver.DiskEntry, low *layer.File) error {
	if low != nil && !low.IsDir() {
		low = nil // in whose place it is
	}
	d := &dir{name: p + "/", lower: low, opaque: parent.opaque || e.Opaque}
	if d.opaque && low != nil {
		d.names = map[string]bool{}
	}
	d.same = !parent.opaque && !e.Opaque && b.same(p, e, low)
	b.path = append(b.path, d)
	if content, ok := b.src.Assembled[p]; !d.same && (!ok || content != nil) {
		b.changed = true
	}
	return b.put(p, e)
}

func (b *builder) addFile(parent *dir, p string, e driver.DiskEntry, low *layer.File) error {
	if e.Inode != 0 && b.files == nil {
		if err := b.findFiles(); err != nil {
			return err
		}
	}
	f := b.files[e.Inode]
	switch {
	case f != nil && f.same:
		return nil
	case f == nil && b.same(p, e, low):
		same, err := b.sameData(e, low)
		if err != nil {
			return fmt.Errorf("compare %q: %w", p, err)
		}
		if same {
			return nil // copied up, but not changed
		}
	}
	parent.kept++
	if !b.changed {
		assembled, err := b.assembled(p, e)
		if err != nil {
			return err
		}
		b.changed = !assembled
	}
	if f == nil {
		return b.put(p, e)
	}
	if f.first == "" {
		f.first = p
		return b.put(p, e)
	}
	if x, ok := b.extras[f.first]; ok {
		x.File = f.first + " " + b.salt
		b.extras[f.first], b.extras[p] = x, x
	}
	return b.tree.Link(p, f.first)
}

// addDevice takes a whiteout, or a device, which the layer cannot hold: there
// it is a whiteout too.
func (b *builder) addDevice(parent *dir, p string, e driver.DiskEntry, low *layer.File) error {
	if e.Mode&unix.S_IFMT == unix.S_IFCHR && e.Major == 0 && e.Minor == 0 {
		if low == nil {
			return nil // hides nothing
		}
	} else {
		x := Extra{Xattrs: userXattrs(e), Device: &Device{
			Mode: e.Mode, UID: e.UID, GID: e.GID, Major: e.Major, Minor: e.Minor, ModTime: e.ModTime.UTC(),
		}}
		b.extras[p] = x
		if !parent.opaque && x.same(b.below[p]) {
			return nil // as the machine's start made it
		}
	}
	parent.kept++
	b.changed = true
	return b.tree.Add(whiteout(p))
}

// inherit takes over what the layers below have and this one leaves alone. The
// start of the machine made each device of theirs: what is not there has been
// removed.
func (b *builder) inherit() {
	for p, x := range b.below {
		if _, ok := b.extras[p]; ok {
			continue
		}
		if x.Device != nil {
			b.changed = true
		} else if !hides(b.tree, p) {
			b.extras[p] = x
		}
	}
}

func (x Extra) same(y Extra) bool {
	return equalXattrs(x.Xattrs, y.Xattrs) && x.Device != nil && y.Device != nil &&
		x.Device.ModTime.Equal(y.Device.ModTime) && x.Device.numbers() == y.Device.numbers()
}

func (d *Device) numbers() [5]uint32 { return [5]uint32{d.Mode, d.UID, d.GID, d.Major, d.Minor} }

// put adds the entry to the tree, and its attributes to the record.
func (b *builder) put(p string, e driver.DiskEntry) error {
	if x := userXattrs(e); len(x) > 0 {
		b.extras[p] = Extra{Xattrs: x}
	}
	extents := make([]layer.Extent, len(e.Extents))
	for i, x := range e.Extents {
		extents[i] = layer.Extent(x)
	}
	return b.tree.Add(layer.Entry{
		Path: p, Mode: e.Mode, UID: e.UID, GID: e.GID, MTime: e.ModTime, Target: e.Target,
		Size: e.Size, ContentAt: e.Content, Extents: extents,
	})
}

func userXattrs(e driver.DiskEntry) map[string][]byte {
	var out map[string][]byte
	for name, v := range e.Xattrs {
		if keepXattr(name) {
			if out == nil {
				out = map[string][]byte{}
			}
			out[name] = v
		}
	}
	return out
}

// same reports whether the entry has all attributes of what is below.
func (b *builder) same(p string, e driver.DiskEntry, low *layer.File) bool {
	return low != nil && e.Mode == low.Mode() && e.UID == low.UID() && e.GID == low.GID() &&
		e.ModTime.Equal(low.ModTime()) && maps.EqualFunc(userXattrs(e), b.below[p].Xattrs, func(x, y []byte) bool { return string(x) == string(y) })
}

// sameData compares a file's or a link's data; the attributes are the same.
func (b *builder) sameData(e driver.DiskEntry, low *layer.File) (bool, error) {
	switch e.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if e.Size != low.Size() {
			return false, nil
		}
		c, err := b.lower.Content(low)
		if err != nil {
			return false, err
		}
		return sameContent(e.Content, c, e.Size)
	case unix.S_IFLNK:
		target, err := low.Readlink()
		return target == e.Target, err
	}
	return true, nil
}

// assembled reports whether a file is one that the machine's start wrote.
func (b *builder) assembled(p string, e driver.DiskEntry) (bool, error) {
	want, ok := b.src.Assembled[p]
	if !ok || want == nil || e.Mode != unix.S_IFREG|0o644 || e.Size != int64(len(want)) {
		return false, nil
	}
	got := make([]byte, len(want))
	if err := readFull(e.Content, got, 0); err != nil && err != io.EOF {
		return false, err
	}
	return string(got) == string(want), nil
}

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
