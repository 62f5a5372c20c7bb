package savedtree

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var sample = []*Node{
	{Mode: 0o40755, Sec: -5, Nsec: 999999999, Links: 2, Inode: 1},
	{Path: "d\xff", Mode: 0o40700, UID: 1 << 31, GID: 4, Xattrs: []Xattr{{"user.a=\xff", []byte{0, 1}}, {"e", []byte{}}}},
	{Path: "d\xff/" + strings.Repeat("n", 255), Mode: 0o100644, Size: 1 << 40, Links: 3, Inode: 1 << 60, Extents: []Extent{{0, 4096, 8192}, {1 << 30, 1<<30 + 8192, 0}}},
	{Path: "l", Mode: 0o120777, Target: strings.Repeat("t", MaxTarget)},
	{Path: "n", Mode: 0o20600, Major: 1, Minor: 1 << 19},
}

func encode(t testing.TB, nodes ...*Node) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, n := range nodes {
		if err := w.Add(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func decode(b []byte) (nodes []*Node, err error) {
	r, err := NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	for {
		n, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nodes, nil
		}
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, n)
	}
}

func TestRoundTrip(t *testing.T) {
	got, err := decode(encode(t, sample...))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sample, got); d != "" {
		t.Error(d)
	}
	if got, err := decode(encode(t)); err != nil || len(got) != 0 {
		t.Errorf("an empty tree: %v, %v", got, err)
	}
}

func TestTorn(t *testing.T) {
	b := encode(t, sample...)
	for i := range b {
		if _, err := decode(b[:i]); !errors.Is(err, ErrBad) {
			t.Fatalf("cut after %d of %d bytes: %v", i, len(b), err)
		}
	}
	if _, err := decode(append(b, 0)); !errors.Is(err, ErrBad) {
		t.Errorf("a byte too many: %v", err)
	}
	// The file is shorter than it was when it was measured.
	r, err := NewReader(bytes.NewReader(b[:40]), int64(len(b)))
	for err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, ErrBad) {
		t.Errorf("a file that shrank: %v", err)
	}
}

// A record that promises much costs nothing before it is there.
func TestPromises(t *testing.T) {
	b := append([]byte(magic), 0, 0, 0, 0x10)
	if _, err := decode(append(b, make([]byte, 100)...)); !errors.Is(err, ErrBad) {
		t.Errorf("%v", err)
	}
}

func TestRefused(t *testing.T) {
	for _, n := range []*Node{
		{Path: "/abs"}, {Path: "a//b"}, {Path: "a/"}, {Path: "."}, {Path: "a/../b"}, {Path: "..", Mode: 0o40755},
		{Path: strings.Repeat("n", 256)}, {Path: "a\x00"},
		{Size: -1},
		{Extents: []Extent{{4096, 0, 0}}}, {Extents: []Extent{{0, 4096, -4096}}}, {Extents: []Extent{{0, 5000, 0}}},
		{Extents: []Extent{{0, 8192, 0}, {4096, 8192, 0}}}, {Extents: []Extent{{0, 4096, 1<<62 + 4096}}}, {Extents: []Extent{{-4096, 4096, 0}}},
	} {
		if _, err := decode(encode(t, n)); !errors.Is(err, ErrBad) {
			t.Errorf("%+v: %v", n, err)
		}
	}
	w := NewWriter(io.Discard)
	for _, n := range []*Node{
		{Path: strings.Repeat("p/", 2048)}, {Target: strings.Repeat("t", MaxTarget+1)},
		{Xattrs: make([]Xattr, maxXattrs+1)}, {Xattrs: []Xattr{{"user.a", make([]byte, maxXattrBytes)}}},
	} {
		if err := w.Add(n); !errors.Is(err, ErrBad) {
			t.Errorf("written: %v", err)
		}
	}
}

// Whatever the bytes, a Reader ends, and what it gives can be written again
// and is the same then.
func FuzzReader(f *testing.F) {
	f.Add(encode(f, sample...))
	f.Add(encode(f))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		nodes, err := decode(b)
		if err != nil {
			if !errors.Is(err, ErrBad) {
				t.Fatalf("%v is not the input's fault", err)
			}
			return
		}
		again, err := decode(encode(t, nodes...))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(nodes, again); d != "" {
			t.Fatal(d)
		}
	})
}
