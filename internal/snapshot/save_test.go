package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/image"
)

// story is a file system over its generations.
type story struct {
	t      *testing.T
	s      *Store
	w      *world
	layers []image.Layer
}

func newStory(t *testing.T) *story { return &story{t: t, s: openStore(t), w: newWorld()} }

func (s *story) mkdir(p ...string) {
	for _, p := range p {
		s.w.create(p, s.w.newNode(unix.S_IFDIR|0o755, ""), 0)
	}
}

func (s *story) file(p, data string) *node {
	s.w.inode++
	n := s.w.newNode(unix.S_IFREG|0o644, data)
	s.w.create(p, n, s.w.inode)
	return n
}

func (s *story) link(from, to string) {
	n := s.w.change(from)
	s.w.create(to, n, s.w.upper[from].ino)
}

// save ends a generation and begins the next one.
func (s *story) save() {
	s.t.Helper()
	l, ok, err := s.s.Save(s.t.Context(), Source{Disk: s.w, Lowers: s.layers})
	if err != nil || !ok {
		s.t.Fatal(ok, err)
	}
	s.layers = append(s.layers, l)
	s.check(s.layers)
	s.w.begin()
}

func (s *story) check(layers []image.Layer) {
	s.t.Helper()
	if d := cmp.Diff(s.w.lines(), shown(s.t, s.s, layers)); d != "" {
		s.t.Fatalf("the layers show something else (-want +got):\n%s", d)
	}
}

// merge holds against the model every way to merge the last layers.
func (s *story) merge() {
	s.t.Helper()
	for i := range s.layers {
		m, err := s.s.Merge(s.t.Context(), s.layers[:i], s.layers[i:])
		if err != nil {
			s.t.Fatal(err)
		}
		s.check(append(append([]image.Layer{}, s.layers[:i]...), m))
	}
}

// A directory that goes in one generation and comes back in the next shows
// nothing of the first, merged or not.
func TestMergeOfReturnedDirectory(t *testing.T) {
	s := newStory(t)
	s.mkdir("/a", "/a/b", "/a/b/c", "/a/d")
	s.file("/a/b/old", "1")
	s.file("/a/b/c/old", "1")
	s.file("/a/d/old", "1")
	s.save()
	s.w.remove("/a")
	s.mkdir("/x")
	s.save()
	s.mkdir("/a", "/a/b", "/a/b/c")
	s.file("/a/b/new", "2")
	s.save()
	s.file("/a/b/c/new", "3")
	s.mkdir("/a/d")
	s.save()
	s.merge()
}

func TestMergeOfDirectoryOverFile(t *testing.T) {
	s := newStory(t)
	s.mkdir("/a")
	s.file("/a/f", "1")
	s.save()
	s.w.remove("/a")
	s.file("/a", "a file")
	s.save()
	s.w.remove("/a")
	s.mkdir("/a")
	s.file("/a/g", "2")
	s.save()
	s.merge()
}

// Two files that are alike become one: that is a change.
func TestSaveLinkedTwins(t *testing.T) {
	s := newStory(t)
	a, b := s.file("/a", "same"), s.file("/b", "same")
	b.mtime = a.mtime
	s.save()
	s.w.remove("/b")
	s.link("/a", "/b")
	s.w.files["/"].mtime = s.w.now()
	s.save()
	s.merge()
}

// A directory made anew with files that are as they were before holds them by
// itself.
func TestSaveRebuiltDirectory(t *testing.T) {
	s := newStory(t)
	s.mkdir("/d")
	mtime := s.file("/d/a", "same").mtime
	s.link("/d/a", "/d/b")
	s.file("/d/old", "")
	s.save()
	s.w.remove("/d")
	s.mkdir("/d")
	s.file("/d/a", "same").mtime = mtime
	s.link("/d/a", "/d/b")
	s.save()
	s.merge()
}

// What only the machine's start has written is not worth a layer, but part of
// one.
func TestSaveAssembled(t *testing.T) {
	s := newStory(t)
	s.mkdir("/etc", "/tmp")
	s.save()
	s.file("/etc/hosts", "localhost")
	s.mkdir("/work")
	src := Source{Disk: s.w, Lowers: s.layers, Assembled: map[string][]byte{"/etc/hosts": []byte("localhost"), "/etc": nil, "/work": nil}}
	s.w.files["/"].mtime = s.w.now()
	s.w.upper["/"].n.mtime = s.w.files["/"].mtime
	root := *s.w.files["/"]
	root.mtime = s.w.now()
	save := func() bool {
		_, ok, err := s.s.Save(t.Context(), src)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	old, err := openStack(s.layers)
	if err != nil {
		t.Fatal(err)
	}
	low, err := old.Root()
	if err != nil {
		t.Fatal(err)
	}
	s.w.files["/"].mtime = low.ModTime() // the agent sets it back
	old.Close()
	if save() {
		t.Error("what the start wrote is taken for the user's")
	}
	s.w.change("/etc/hosts").data = "mine.host"
	if !save() {
		t.Error("a changed file is taken for the start's")
	}
}

func TestSaveSkips(t *testing.T) {
	s := newStory(t)
	s.mkdir("/d", "/.tmp", "/.tmp/x")
	s.file("/d/.half", "1")
	s.link("/d/.half", "/d/whole")
	s.file("/d/.halfway", "2")
	l, _, err := s.s.Save(t.Context(), Source{Disk: s.w, Skip: func(p string) bool { return p == "/d/.half" || p == "/.tmp" }})
	if err != nil {
		t.Fatal(err)
	}
	s.w.remove("/.tmp")
	got := shown(t, s.s, []image.Layer{l})
	for p, want := range map[string]bool{"/d/.half": false, "/d/whole": true, "/d/.halfway": true, "/.tmp": false, "/.tmp/x": false} {
		if (got[p] != "") != want {
			t.Errorf("%s: %q", p, got[p])
		}
	}
}

// disk is a fixed list of entries.
type disk []driver.DiskEntry

func (d disk) Entries(yield func(driver.DiskEntry) error) error {
	for _, e := range d {
		if err := yield(e); err != nil {
			return err
		}
	}
	return nil
}

func (d disk) Done() {}

// Nothing that a disk may say brings more than an error, and nothing is left.
func TestSaveRefuses(t *testing.T) {
	dir := driver.DiskEntry{Mode: unix.S_IFDIR | 0o755}
	f := func(p string) driver.DiskEntry { return driver.DiskEntry{Path: p, Mode: unix.S_IFREG} }
	broken := f("f")
	broken.Size, broken.Content, broken.Extents = 3, failing{errors.New("bad sector")}, []driver.Extent{{Length: 3}}
	full := broken
	full.Content = failing{unix.ENOSPC}
	outside := f("f")
	outside.Size, outside.Content, outside.Extents = 3, strings.NewReader("abc"), []driver.Extent{{Length: 5000}}
	huge := f("f")
	huge.Size, huge.Content = 1<<62, strings.NewReader("")
	for _, tt := range []struct {
		name, want string
		disk       disk
	}{
		{"a file without its directory", "directory", disk{dir, f("a/b")}},
		{"a way out", "..", disk{dir, {Path: "..", Mode: unix.S_IFDIR}, f("../f")}},
		{"a bad type", "type", disk{dir, {Path: "f", Mode: 0o644}}},
		{"a bad sector", "bad sector", disk{dir, broken}},
		{"a full disk", "glovebox prune", disk{dir, full}},
		{"an extent outside", "extent", disk{dir, outside}},
		{"more than a layer can hold", "more than a snapshot can", disk{dir, huge}},
		{"no root", "directory", disk{f("f")}},
	} {
		s := openStore(t)
		_, ok, err := s.Save(t.Context(), Source{Disk: tt.disk})
		if ok || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v", tt.name, ok, err)
		}
		if left, _ := filepath.Glob(filepath.Join(s.dir, "sha256-*")); len(left) > 0 {
			t.Errorf("%s: left are %q", tt.name, left)
		}
		if left, _ := os.ReadDir(s.scratch.Path()); len(left) > 0 {
			t.Errorf("%s: left are %v", tt.name, left)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := openStore(t).Save(ctx, Source{Disk: disk{dir, f("a")}}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: %v", err)
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestLoad(t *testing.T) {
	s := newStory(t)
	s.file("/f", "1")
	s.save()
	l := s.layers[0]
	if got, err := s.s.Load(l.Digest); err != nil || got.Path != l.Path || got.Size != l.Size || got.Digest != l.Digest {
		t.Errorf("%+v, %v, want %+v", got, err, l)
	}
	if err := s.s.Verify(t.Context(), l.Digest); err != nil {
		t.Error(err)
	}
	for _, d := range []string{"sha256:" + strings.Repeat("0", 64), "", "sha256:../../etc/passwd", "md5:1"} {
		if _, err := s.s.Load(d); err == nil {
			t.Errorf("%q was found", d)
		}
	}
	if err := os.Truncate(l.Path, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := s.s.Load(l.Digest); err == nil {
		t.Error("a torn layer was found")
	}
	if err := os.Remove(l.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.s.Load(l.Digest); !errors.Is(err, ErrNotFound) {
		t.Errorf("a layer that is gone: %v", err)
	}
}

func TestPrune(t *testing.T) {
	s := newStory(t)
	for i := range 3 {
		s.file(fmt.Sprintf("/%d", i), "1")
		s.save()
	}
	img := filepath.Join(s.s.dir, "sha256-"+strings.Repeat("1", 64)+".erofs")
	if err := os.WriteFile(img, []byte("an image's layer"), 0o444); err != nil {
		t.Fatal(err)
	}
	prune := func(keep string) int64 {
		t.Helper()
		var sum [2]int64
		for i, dryRun := range []bool{true, false} {
			removed, err := s.s.Prune(t.Context(), func(d string) bool { return d == keep }, dryRun)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range removed {
				sum[i] += r.Bytes
			}
		}
		if sum[0] != sum[1] {
			t.Errorf("%d bytes were freed, and %d said", sum[1], sum[0])
		}
		return sum[1]
	}
	if n := prune(""); n != 0 {
		t.Errorf("%d bytes of layers that were just made were removed", n)
	}
	if _, err := s.s.Prune(t.Context(), func(string) bool { return true }, false); err != nil { // now they are known
		t.Fatal(err)
	}
	used, err := s.s.DiskUse(nil)
	if err != nil || used.Layers != 3 || used.Bytes == 0 {
		t.Errorf("%+v, %v", used, err)
	}
	r, err := os.Open(s.layers[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n := prune(s.layers[1].Digest); n == 0 || n >= used.Bytes {
		t.Errorf("%d of %d bytes were freed", n, used.Bytes)
	}
	for i, l := range s.layers {
		if _, err := s.s.Load(l.Digest); (err == nil) != (i == 1) {
			t.Errorf("layer %d: %v", i, err)
		}
	}
	if _, err := io.ReadAll(r); err != nil {
		t.Errorf("a layer that was in use: %v", err)
	}
	if _, err := os.Stat(img); err != nil {
		t.Errorf("an image's layer: %v", err)
	}
}

func TestOpenRemovesHalves(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "layers", "partial", "dead")
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old, "half"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dead process's half is still there: %v", err)
	}
}
