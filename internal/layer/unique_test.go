package layer

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// sparse is content of which only the extents are there.
func sparse(t *testing.T, p string, size int64, extents ...Extent) (Entry, *os.File) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "content"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	r := rand.NewChaCha8([32]byte{1})
	for _, x := range extents {
		b := make([]byte, x.Length)
		_, _ = r.Read(b)
		if _, err := f.WriteAt(b, x.Offset); err != nil {
			t.Fatal(err)
		}
	}
	return Entry{Path: p, Mode: unix.S_IFREG | 0o600, MTime: noon, Size: size, ContentAt: f, Extents: extents}, f
}

func TestUnique(t *testing.T) {
	tree, err := New(Options{SpoolDir: t.TempDir(), Unique: true})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	add(t, tree, dir("d", 0o755), file("d/spooled", "text"))
	var want []Entry
	for _, c := range []struct {
		p       string
		size    int64
		extents []Extent
	}{
		{"none", 0, nil},
		{"hole", 5 << 20, nil},
		{"small", 5000, []Extent{{0, 5000}}},
		{"unaligned", 3<<20 + 7, []Extent{{3, 10}, {1000, 2 << 20}, {3<<20 + 6, 1}}},
		{"island", 40 << 20, []Extent{{20<<20 + 4096, 300 << 10}}},
		{"full", 1 << 20, []Extent{{0, 1 << 20}}},
	} {
		e, _ := sparse(t, c.p, c.size, c.extents...)
		want = append(want, e)
	}
	add(t, tree, want...)
	var last Info
	for range 2 {
		f, err := os.Create(filepath.Join(t.TempDir(), "layer.erofs"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := tree.Write(context.Background(), f)
		if err != nil {
			t.Fatal(err)
		}
		if err := info.Verify(context.Background(), f); err != nil {
			t.Error(err)
		}
		if info.Digest == last.Digest || len(info.Holes) < 3 {
			t.Errorf("%+v after %+v", info, last)
		}
		last = info
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Blocks*512 > 6<<20 {
			t.Errorf("it takes up %d bytes, %v", st.Blocks*512, err)
		}
		checkUnique(t, f.Name(), want)
		checkDamage(t, f, info)
	}
	if err := newTree(t, Limits{}).Add(want[0]); err == nil {
		t.Error("a tree that is not unique takes content that it has not seen")
	}
}

func checkUnique(t *testing.T, name string, want []Entry) {
	t.Helper()
	s, err := OpenStack(name)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	root, err := s.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range want {
		f, err := s.Child(root, e.Path)
		if err != nil || f == nil {
			t.Fatal(f, err)
		}
		c, err := s.Content(f)
		if err != nil {
			t.Fatal(err)
		}
		got, exp := make([]byte, e.Size), make([]byte, e.Size)
		if _, err := c.ReadAt(got, 0); e.Size > 0 && err != nil {
			t.Fatal(err)
		}
		if _, err := e.ContentAt.ReadAt(exp, 0); e.Size > 0 && err != nil {
			t.Fatal(err)
		}
		if f.Size() != e.Size || !bytes.Equal(got, exp) {
			t.Errorf("%s is another", e.Path)
		}
	}
}

// checkDamage: a single bit is noticed, wherever it is.
func checkDamage(t *testing.T, f *os.File, info Info) {
	t.Helper()
	for _, off := range []int64{0, 1030, info.Meta - 1, info.Meta, info.Meta + 5000} {
		b := make([]byte, 1)
		flip := func() {
			if _, err := f.ReadAt(b, off); err != nil {
				t.Fatal(err)
			}
			b[0] ^= 4
			if _, err := f.WriteAt(b, off); err != nil {
				t.Fatal(err)
			}
		}
		flip()
		if err := info.Verify(context.Background(), f); !errors.Is(err, ErrArchive) {
			t.Errorf("a bit of byte %d: %v", off, err)
		}
		flip()
	}
	short := info
	short.Size--
	if err := short.Verify(context.Background(), f); !errors.Is(err, ErrArchive) {
		t.Errorf("another size: %v", err)
	}
}
