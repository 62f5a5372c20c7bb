package snapshot

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/glovebox-dev/glovebox/internal/image"
)

func openStore(t testing.TB) *Store {
	t.Helper()
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Whatever is done to a file system between saves, the layers show what it
// was, also when some of them are merged.
func TestSaveAndMergeAgainstModel(t *testing.T) {
	s := openStore(t)
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld()
		w.files["/"].mtime = w.now() // so that the first layer is not empty
		var layers []image.Layer
		var before map[string]string
		for range 12 { // something for the generations to disagree about
			populate(rt, w)
		}
		for range rapid.IntRange(1, 4).Draw(rt, "generations") {
			for range rapid.IntRange(0, 12).Draw(rt, "operations") {
				step(rt, w)
			}
			l, ok, err := s.Save(t.Context(), Source{Disk: w, Lowers: layers})
			if err != nil {
				rt.Fatal(err)
			}
			if ok {
				layers = append(layers, l)
			}
			old := before
			before = w.lines()
			want := before
			if d := cmp.Diff(want, shown(t, s, layers)); d != "" {
				rt.Fatalf("saved (ok=%v) is not what was there (-want +got):\n%s", ok, d)
			}
			if ok && len(layers) > 1 {
				if d := cmp.Diff(changes(old, want), diff(t, s, layers[:len(layers)-1], layers)); d != "" {
					rt.Fatalf("the difference is another (-want +got):\n%s", d)
				}
			}
			w.begin()
			if _, ok, err := s.Save(t.Context(), Source{Disk: w, Lowers: layers}); ok || err != nil {
				rt.Fatalf("without a change: a layer=%v, %v", ok, err)
			}
			if n := rapid.IntRange(0, len(layers)).Draw(rt, "merged"); n > 0 && n < len(layers)+1 {
				base := layers[:len(layers)-n]
				m, err := s.Merge(t.Context(), base, layers[len(base):])
				if err != nil {
					rt.Fatal(err)
				}
				merged := append(slices.Clone(base), m)
				if d := cmp.Diff(want, shown(t, s, merged)); d != "" {
					rt.Fatalf("%d of %d layers merged show something else (-want +got):\n%s", n, len(layers), d)
				}
				if rapid.Bool().Draw(rt, "go on with the merged one") {
					layers = merged
				}
			}
		}
	})
}

// diff is what Store.Diff says, by path.
func diff(t *testing.T, s *Store, a, b []image.Layer) map[string]ChangeKind {
	t.Helper()
	out := map[string]ChangeKind{}
	last := ""
	err := s.Diff(t.Context(), a, b, func(c Change) error {
		if c.Path != "/" && c.Path <= last && path.Dir(c.Path) == path.Dir(last) {
			t.Errorf("%s comes after %s", c.Path, last)
		}
		last = c.Path
		out[c.Path] = c.Kind
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var linked = regexp.MustCompile(` =\S*`)

// changes compares two models. Which names are one file is no difference.
func changes(a, b map[string]string) map[string]ChangeKind {
	out := map[string]ChangeKind{}
	for p, x := range a {
		y, ok := b[p]
		switch {
		case !ok:
			out[p] = Deleted
		case linked.ReplaceAllString(x, "") != linked.ReplaceAllString(y, ""):
			out[p] = Changed
		}
	}
	for p := range b {
		if _, ok := a[p]; !ok {
			out[p] = Added
		}
	}
	return out
}

var names = []string{"a", "b"}

// place draws a path whose directory exists.
func place(t *rapid.T, w *world, depth int) string {
	p := "/"
	for range depth {
		if n := w.files[p]; n == nil || !n.is(unix.S_IFDIR) {
			break
		}
		p = path.Join(p, rapid.SampledFrom(names).Draw(t, "name"))
	}
	return p
}

// populate makes a directory or a file where there is none.
func populate(t *rapid.T, w *world) {
	p := place(t, w, rapid.IntRange(1, 4).Draw(t, "depth"))
	if w.files[p] != nil {
		return
	}
	if rapid.IntRange(0, 3).Draw(t, "directory") > 0 {
		w.create(p, w.newNode(unix.S_IFDIR|0o755, ""), 0)
		return
	}
	w.inode++
	w.create(p, w.newNode(unix.S_IFREG|0o644, "old"), w.inode)
}

// step does one thing to the file system, if it can be done.
func step(t *rapid.T, w *world) {
	p := place(t, w, rapid.IntRange(1, 4).Draw(t, "depth"))
	n := w.files[p]
	op := rapid.SampledFrom([]string{"mkdir", "mkdir", "write", "symlink", "link", "link", "remove", "remove", "replace", "replace", "chmod", "touch", "copyup", "xattr", "xattr", "fifo", "socket", "device", "rename"}).Draw(t, "op")
	switch op {
	case "mkdir":
		if n == nil {
			w.create(p, w.newNode(unix.S_IFDIR|0o755, ""), 0)
		}
	case "write":
		data := rapid.SampledFrom([]string{"", "x", "long" + string(make([]byte, 5000)) + "end"}).Draw(t, "data")
		if n == nil {
			w.inode++
			w.create(p, w.newNode(unix.S_IFREG|0o644, data), w.inode)
		} else if n.is(unix.S_IFREG) {
			n = w.change(p)
			n.data, n.mtime = data, w.now()
		}
	case "symlink":
		if n == nil {
			w.create(p, w.newNode(unix.S_IFLNK|0o777, "target"), 0)
		}
	case "fifo", "socket":
		if n == nil {
			w.create(p, w.newNode(map[string]uint32{"fifo": unix.S_IFIFO, "socket": unix.S_IFSOCK}[op]|0o600, ""), 0)
		}
	case "device":
		if n == nil {
			n = w.newNode(unix.S_IFBLK|0o600, "")
			n.rdev = uint32(rapid.IntRange(0, 300).Draw(t, "major"))
			w.create(p, n, 0)
		}
	case "remove":
		if n != nil {
			w.remove(p)
		}
	case "replace":
		if n != nil && n.is(unix.S_IFDIR) {
			w.remove(p)
			w.create(p, w.newNode(unix.S_IFDIR|0o700, ""), 0)
		}
	case "chmod":
		if n != nil && !n.is(unix.S_IFLNK) {
			n = w.change(p)
			n.mode = n.mode&unix.S_IFMT | uint32(rapid.SampledFrom([]int{0o600, 0o4755, 0o1777}).Draw(t, "mode"))
			n.uid = uint32(rapid.IntRange(0, 2).Draw(t, "uid"))
		}
	case "touch":
		if n != nil {
			w.change(p).mtime = w.now()
		}
	case "copyup":
		if n != nil {
			w.copyUp(p)
		}
	case "xattr":
		if n != nil && (n.is(unix.S_IFREG) || n.is(unix.S_IFDIR)) {
			setXattr(t, w.change(p))
		}
	case "link", "rename":
		linkOrRename(t, w, p, op == "rename")
	}
}

func setXattr(t *rapid.T, n *node) {
	k := fmt.Sprintf("user.%d", rapid.IntRange(0, 1).Draw(t, "attribute"))
	if rapid.Bool().Draw(t, "take away") {
		delete(n.xattrs, k)
		return
	}
	if n.xattrs == nil {
		n.xattrs = map[string][]byte{}
	}
	n.xattrs[k] = []byte{byte(rapid.IntRange(0, 255).Draw(t, "value"))}
}

// linkOrRename gives the regular file at p another name.
func linkOrRename(t *rapid.T, w *world, p string, rename bool) {
	n := w.files[p]
	to := path.Join(path.Dir(p), rapid.SampledFrom(names).Draw(t, "to"))
	if n == nil || !n.is(unix.S_IFREG) || to == p || w.files[to] != nil {
		return
	}
	n = w.change(p) // an overlay copies up what it links
	w.create(to, n, w.upper[p].ino)
	if rename {
		w.remove(p)
	}
}

func TestMain(m *testing.M) { os.Exit(m.Run()) }
