package snapshot

import (
	"errors"
	"fmt"
	"io"
	"maps"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/layer"
)

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
	if err := readFull(e.Content, got, 0); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return string(got) == string(want), nil
}
