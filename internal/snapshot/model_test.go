package snapshot

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/layer"
)

// node is a file of the model, whatever its names.
type node struct {
	mode, uid uint32
	mtime     time.Time
	data      string // content or target
	rdev      uint32
	xattrs    map[string][]byte
}

func (n *node) is(typ uint32) bool { return n.mode&unix.S_IFMT == typ }

// world is a sandbox's file system as its user sees it, and the writable layer
// as an overlay keeps it.
type world struct {
	files map[string]*node // by absolute path
	lower map[string]bool  // what the layers below show at the start
	upper map[string]*entry
	clock int64
	inode uint64
}

// entry is a name in the writable layer.
type entry struct {
	white, opaque bool
	n             *node
	ino           uint64 // not zero where names may share it
}

func newWorld() *world {
	w := &world{files: map[string]*node{}}
	w.files["/"] = w.newNode(unix.S_IFDIR|0o755, "")
	w.begin()
	return w
}

func (w *world) newNode(mode uint32, data string) *node {
	return &node{mode: mode, mtime: w.now(), data: data}
}

func (w *world) now() time.Time {
	w.clock++
	return time.Unix(w.clock, w.clock*1001%1e9)
}

// begin is the start of a machine: what layers cannot hold is made in the
// writable layer, names of one file together.
func (w *world) begin() {
	w.lower, w.upper = map[string]bool{}, map[string]*entry{"/": {n: w.files["/"]}}
	shared := map[*node]uint64{}
	for p, n := range w.files {
		if !n.is(unix.S_IFCHR) && !n.is(unix.S_IFBLK) {
			w.lower[p] = true
		}
	}
	for p, n := range w.files {
		if len(n.xattrs) == 0 && w.lower[p] {
			continue
		}
		w.parents(p)
		if n.is(unix.S_IFREG) && shared[n] == 0 {
			w.inode++
			shared[n] = w.inode
		}
		w.upper[p] = &entry{n: n, ino: shared[n]}
	}
}

// parents copies the directories of p up.
func (w *world) parents(p string) {
	for p != "/" {
		p = path.Dir(p)
		if w.upper[p] == nil {
			w.upper[p] = &entry{n: w.files[p]}
		}
	}
}

// seen reports whether the layers below have something at p that is not
// hidden further up.
func (w *world) seen(p string) bool {
	if !w.lower[p] {
		return false
	}
	for d := p; d != "/"; {
		d = path.Dir(d)
		if e := w.upper[d]; e != nil && (e.opaque || !e.n.is(unix.S_IFDIR)) {
			return false
		}
	}
	return true
}

func (w *world) touchDir(p string) {
	d := path.Dir(p)
	w.parents(p)
	w.files[d].mtime = w.now()
}

func (w *world) create(p string, n *node, ino uint64) {
	w.touchDir(p)
	old := w.upper[p]
	w.files[p] = n
	w.upper[p] = &entry{n: n, ino: ino, opaque: n.is(unix.S_IFDIR) && old != nil && old.white}
}

func (w *world) remove(p string) {
	w.touchDir(p)
	white := w.seen(p)
	for q := range w.files {
		if q == p || strings.HasPrefix(q, p+"/") {
			delete(w.files, q)
		}
	}
	for q := range w.upper {
		if q == p || strings.HasPrefix(q, p+"/") {
			delete(w.upper, q)
		}
	}
	if white {
		w.upper[p] = &entry{white: true}
	}
}

// copyUp brings p into the writable layer, unchanged.
func (w *world) copyUp(p string) {
	if w.upper[p] == nil {
		w.parents(p)
		w.upper[p] = &entry{n: w.files[p]}
	}
}

// change returns the node of p for a change. A file of several names whose
// name has been copied up alone is a file of its own from here on.
func (w *world) change(p string) *node {
	w.copyUp(p)
	e := w.upper[p]
	if e.ino == 0 && !e.n.is(unix.S_IFDIR) {
		n := *e.n
		n.xattrs = maps.Clone(n.xattrs)
		e.n, w.files[p] = &n, &n
		w.inode++
		e.ino = w.inode
	}
	return e.n
}

// Entries implements driver.Disk.
func (w *world) Entries(yield func(driver.DiskEntry) error) error {
	links := map[uint64]int{}
	for _, e := range w.upper {
		links[e.ino]++
	}
	order := slices.SortedFunc(maps.Keys(w.upper), func(a, b string) int {
		return cmp.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
	})
	for _, p := range order {
		e := w.upper[p]
		d := driver.DiskEntry{Path: p[1:], Opaque: e.opaque}
		if e.white {
			d.Mode, d.Inode = unix.S_IFCHR, 1<<60 // they share one
		} else {
			w.fill(&d, e.n)
			if links[e.ino] > 1 {
				d.Inode = e.ino
			}
		}
		if err := yield(d); err != nil {
			return err
		}
	}
	return nil
}

// Done implements driver.Disk.
func (w *world) Done() {}

func (w *world) fill(d *driver.DiskEntry, n *node) {
	d.Mode, d.UID, d.ModTime, d.Xattrs = n.mode, n.uid, n.mtime, n.xattrs
	switch n.mode & unix.S_IFMT {
	case unix.S_IFREG:
		d.Size, d.Content = int64(len(n.data)), strings.NewReader(n.data)
		if n.data != "" {
			d.Extents = []driver.Extent{{Offset: 0, Length: int64(len(n.data))}}
		}
	case unix.S_IFLNK:
		d.Target = n.data
	case unix.S_IFCHR, unix.S_IFBLK:
		d.Major, d.Minor = n.rdev, 1
	}
}

// shown is what a stack of layers and its record show, a line for each name.
func shown(t testing.TB, s *Store, layers []image.Layer) map[string]string {
	t.Helper()
	st, err := openStack(layers)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	extras, err := s.Extras(layers)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	first := map[any]string{}
	var walk func(p string, f *layer.File)
	walk = func(p string, f *layer.File) {
		n := &node{mode: f.Mode(), uid: f.UID(), mtime: f.ModTime(), xattrs: extras[p].Xattrs}
		switch n.mode & unix.S_IFMT {
		case unix.S_IFREG:
			r, err := st.Content(f)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(io.NewSectionReader(r, 0, f.Size()))
			if err != nil {
				t.Fatal(err)
			}
			n.data = string(b)
		case unix.S_IFLNK:
			if n.data, err = f.Readlink(); err != nil {
				t.Fatal(err)
			}
		}
		out[p] = line(n, f.ID(), p, first)
		if !f.IsDir() {
			return
		}
		var names []string
		if err := st.Names(f, false, func(name string) error { names = append(names, name); return nil }); err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		for _, name := range names {
			k, err := st.Child(f, name)
			if err != nil {
				t.Fatal(err)
			}
			if k != nil {
				walk(path.Join(p, name), k)
			}
		}
	}
	root, err := st.Root()
	if err != nil || root == nil {
		t.Fatal(root, err)
	}
	walk("/", root)
	for p, x := range extras {
		if d := x.Device; d != nil {
			if was := out[p]; was != "" {
				t.Fatalf("%s is a device and %s", p, was)
			}
			n := &node{mode: d.Mode, uid: d.UID, mtime: d.ModTime, rdev: d.Major, xattrs: x.Xattrs}
			out[p] = line(n, n, p, first)
		} else if out[p] == "" {
			t.Fatalf("there are attributes of %s, but no file", p)
		}
	}
	return out
}

func line(n *node, id any, p string, first map[any]string) string {
	link := ""
	if n.is(unix.S_IFREG) {
		if first[id] == "" {
			first[id] = p
		}
		link = first[id]
	}
	var x bytes.Buffer
	for _, k := range slices.Sorted(maps.Keys(n.xattrs)) {
		fmt.Fprintf(&x, " %s=%q", k, n.xattrs[k])
	}
	return fmt.Sprintf("%o %d %d.%d %q %d =%s%s", n.mode, n.uid, n.mtime.Unix(), n.mtime.Nanosecond(), n.data, n.rdev, link, x.String())
}

// lines are the model's, to be compared with what is shown.
func (w *world) lines() map[string]string {
	out := map[string]string{}
	first := map[any]string{}
	order := slices.SortedFunc(maps.Keys(w.files), func(a, b string) int {
		return cmp.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
	})
	for _, p := range order {
		out[p] = line(w.files[p], w.files[p], p, first)
	}
	return out
}
