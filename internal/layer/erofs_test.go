package layer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/erofs"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2024, 2, 29, 12, 0, 0, 123456789, time.UTC)

func newTree(t testing.TB, l Limits) *Tree {
	t.Helper()
	tree, err := New(Options{SpoolDir: t.TempDir(), Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}

func dir(p string, mode uint32) Entry {
	return Entry{Path: p, Mode: unix.S_IFDIR | mode, MTime: noon}
}

func file(p, content string) Entry {
	return Entry{Path: p, Mode: unix.S_IFREG | 0o644, MTime: noon, Size: int64(len(content)), Content: strings.NewReader(content)}
}

func link(p, target string) Entry {
	return Entry{Path: p, Mode: unix.S_IFLNK | 0o777, MTime: noon, Target: target}
}

func add(t testing.TB, tree *Tree, entries ...Entry) {
	t.Helper()
	for _, e := range entries {
		if err := tree.Add(e); err != nil {
			t.Fatal(err)
		}
	}
}

// write writes the tree to a file, has it judged, and returns its path.
func write(t testing.TB, tree *Tree) (string, Info) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "layer.erofs"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := tree.Write(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	judge(t, f.Name(), info)
	return f.Name(), info
}

// judge checks digest and size, and asks the tools of the format's authors.
func judge(t testing.TB, name string, info Info) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		t.Fatal(err)
	}
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != info.Digest || n != info.Size {
		t.Fatalf("file has %s and %d bytes, Write said %s and %d", got, n, info.Digest, info.Size)
	}
	if fsck, err := exec.LookPath("fsck.erofs"); err == nil {
		if out, err := exec.Command(fsck, name).CombinedOutput(); err != nil {
			t.Fatalf("fsck.erofs: %v\n%s", err, out)
		}
	}
}

// node is what gVisor reads of one name.
type node struct {
	Mode     uint16
	UID, GID uint32
	MTime    time.Time
	Nlink    uint32
	Data     string // content or target
	nid      uint64
}

// read opens a layer as the sandbox will and returns all of it by path.
func read(t testing.TB, name string) map[string]node {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	img, err := erofs.OpenImage(f)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	out := map[string]node{}
	readNode(t, img, img.RootNid(), "/", out)
	return out
}

func readNode(t testing.TB, img *erofs.Image, nid uint64, p string, out map[string]node) {
	t.Helper()
	in, err := img.Inode(nid)
	if err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	n := node{Mode: in.Mode(), UID: in.UID(), GID: in.GID(), Nlink: in.Nlink(), nid: nid}
	n.MTime = time.Unix(int64(in.Mtime()), int64(in.MtimeNsec())).UTC()
	switch {
	case in.IsRegular():
		if _, err := in.DataOffset(); err != nil { // refused by mmap otherwise
			t.Fatalf("%s: %v", p, err)
		}
		ranges, err := in.DataRanges()
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		n.Data = string(ranges[0].Bytes)
		if ranges[0].Size != in.Size() {
			t.Fatalf("%s: data of %d bytes is not in one range: %v", p, in.Size(), ranges[0].Size)
		}
	case in.IsSymlink():
		if n.Data, err = in.Readlink(); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
	}
	out[p] = n
	if !in.IsDir() {
		return
	}
	err = in.IterDirents(func(name string, _ uint8, kid uint64) error {
		if got, err := in.Lookup(name); err != nil || got != kid {
			return fmt.Errorf("lookup of %q: %d, %w; listed as %d", name, got, err, kid)
		}
		if name != "." && name != ".." {
			readNode(t, img, kid, path.Join(p, name), out)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", p, err)
	}
}

func names(m map[string]node) []string { return slices.Sorted(maps.Keys(m)) }

func TestWriteKeepsEverything(t *testing.T) {
	tree := newTree(t, Limits{})
	large := strings.Repeat("0123456789abcdef", 20_000)
	add(t, tree,
		Entry{Path: "/", Mode: unix.S_IFDIR | 0o751, UID: 5, GID: 6, MTime: noon},
		dir("usr/bin", 0o1777),
		Entry{Path: "usr/bin/su", Mode: unix.S_IFREG | 0o6755, UID: 70_000, GID: 4_000_000_000, MTime: noon, Size: int64(len(large)), Content: strings.NewReader(large)},
		file("empty", ""),
		file("block", strings.Repeat("b", blockSize)),
		link("short", "../a"),
		link("long", strings.Repeat("x/", 1500)),
		link("longest", strings.Repeat("y", maxTarget)),
		Entry{Path: "fifo", Mode: unix.S_IFIFO | 0o600, MTime: time.Unix(-5, 7)},
		Entry{Path: "null", Mode: unix.S_IFCHR | 0o666, Major: 1, Minor: 3},
		Entry{Path: "disk", Mode: unix.S_IFBLK | 0o660, Major: 259, Minor: 70_000},
		Entry{Path: "socket", Mode: unix.S_IFSOCK | 0o600},
	)
	if err := tree.Link("hard", "/usr/bin/su"); err != nil {
		t.Fatal(err)
	}
	name, info := write(t, tree)
	got := read(t, name)
	su := node{Mode: unix.S_IFREG | 0o6755, UID: 70_000, GID: 4_000_000_000, MTime: noon, Nlink: 2, Data: large}
	zero := time.Unix(0, 0).UTC()
	want := map[string]node{
		"/":           {Mode: unix.S_IFDIR | 0o751, UID: 5, GID: 6, MTime: noon, Nlink: 3},
		"/usr":        {Mode: unix.S_IFDIR | 0o755, MTime: zero, Nlink: 3},
		"/usr/bin":    {Mode: unix.S_IFDIR | 0o1777, MTime: noon, Nlink: 2},
		"/usr/bin/su": su,
		"/hard":       su,
		"/empty":      {Mode: unix.S_IFREG | 0o644, MTime: noon, Nlink: 1},
		"/block":      {Mode: unix.S_IFREG | 0o644, MTime: noon, Nlink: 1, Data: strings.Repeat("b", blockSize)},
		"/short":      {Mode: unix.S_IFLNK | 0o777, MTime: noon, Nlink: 1, Data: "../a"},
		"/long":       {Mode: unix.S_IFLNK | 0o777, MTime: noon, Nlink: 1, Data: strings.Repeat("x/", 1500)},
		"/longest":    {Mode: unix.S_IFLNK | 0o777, MTime: noon, Nlink: 1, Data: strings.Repeat("y", maxTarget)},
		"/fifo":       {Mode: unix.S_IFIFO | 0o600, MTime: time.Unix(-5, 7).UTC(), Nlink: 1},
		"/null":       {Mode: unix.S_IFCHR | 0o666, MTime: zero, Nlink: 1},
		"/disk":       {Mode: unix.S_IFBLK | 0o660, MTime: zero, Nlink: 1},
		"/socket":     {Mode: unix.S_IFSOCK | 0o600, MTime: zero, Nlink: 1},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(node{}), cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".nid" }, cmp.Ignore())); d != "" {
		t.Error(d)
	}
	if got["/hard"].nid != got["/usr/bin/su"].nid {
		t.Error("hard links are two files")
	}
	if info.Inodes != len(want)-1 {
		t.Errorf("%d inodes, want %d", info.Inodes, len(want)-1)
	}
}

func TestLargeDirectories(t *testing.T) {
	for _, count := range []int{1, 60, 200, 2000} {
		for _, length := range []int{4, 100, maxName} {
			tree := newTree(t, Limits{})
			want := []string{"/", "/d"}
			add(t, tree, dir("d", 0o755))
			for i := range count {
				p := fmt.Sprintf("/d/%0*d", length, i)
				want = append(want, p)
				add(t, tree, file(p, p))
			}
			name, _ := write(t, tree)
			got := read(t, name)
			slices.Sort(want)
			if !slices.Equal(names(got), want) {
				t.Fatalf("%d names of %d bytes: %d came back", count, length, len(got))
			}
			for p, n := range got {
				if n.Mode&unix.S_IFMT == unix.S_IFREG && n.Data != p {
					t.Fatalf("%s holds %q", p, n.Data)
				}
			}
		}
	}
}

func TestEqualTreesAreEqualFiles(t *testing.T) {
	entries := func() []Entry {
		return []Entry{dir("a", 0o700), file("a/1", "one"), file("a/2", "two"), dir("b", 0o755), link("b/l", "../a/1"), file("c", strings.Repeat("c", 9000))}
	}
	var digests []string
	for _, order := range [][]int{{0, 1, 2, 3, 4, 5}, {5, 3, 4, 0, 2, 1}} {
		tree := newTree(t, Limits{})
		add(t, tree, file("gone", "junk"))
		if err := tree.Remove("gone"); err != nil {
			t.Fatal(err)
		}
		for _, i := range order {
			add(t, tree, entries()[i])
		}
		_, info := write(t, tree)
		_, again := write(t, tree)
		digests = append(digests, info.Digest, again.Digest)
	}
	if len(slices.Compact(digests)) != 1 {
		t.Errorf("digests differ: %v", digests)
	}
	tree := newTree(t, Limits{})
	for _, e := range entries() {
		if e.Path == "a/1" {
			e = file("a/1", "One")
		}
		add(t, tree, e)
	}
	a, info := write(t, tree)
	if info.Digest == digests[0] {
		t.Error("another content, the same digest")
	}
	if b, err := os.ReadFile(a); err != nil || bytes.Equal(b[superOffset+48:superOffset+64], make([]byte, 16)) {
		t.Errorf("no identity in the superblock: %v", err)
	}
}

func TestHolesTakeNoSpace(t *testing.T) {
	const size = 1 << 26
	tree := newTree(t, Limits{})
	add(t, tree, Entry{Path: "sparse", Mode: unix.S_IFREG | 0o644, Size: size, Content: io.MultiReader(io.LimitReader(zeroReader{}, size-3), strings.NewReader("end"))},
		Entry{Path: "zero", Mode: unix.S_IFREG | 0o644, Size: size, Content: zeroReader{}})
	name, info := write(t, tree)
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		t.Fatal(err)
	}
	if st.Blocks*512 > 1<<20 || info.Size < 2*size {
		t.Errorf("%d bytes on disk for a file of %d", st.Blocks*512, info.Size)
	}
	got := read(t, name)
	if d := got["/sparse"].Data; len(d) != size || !strings.HasSuffix(d, "\x00end") || len(got["/zero"].Data) != size {
		t.Errorf("sparse file came back with %d bytes", len(d))
	}
}

func TestFromFiles(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "boot.erofs"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := FromFiles(context.Background(), f, file("agent", "binary"), dir("proc", 0o555), dir("l0", 0o755))
	if err != nil {
		t.Fatal(err)
	}
	judge(t, f.Name(), info)
	if got := names(read(t, f.Name())); !slices.Equal(got, []string{"/", "/agent", "/l0", "/proc"}) {
		t.Error(got)
	}
}

func TestWriteEndsWithItsContext(t *testing.T) {
	tree := newTree(t, Limits{})
	add(t, tree, file("f", "content"))
	f, err := os.Create(filepath.Join(t.TempDir(), "layer.erofs"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := tree.Write(ctx, f); err == nil {
		t.Error("a cancelled write succeeded")
	}
}

// Any tree that can be built comes back as it was.
func TestAnyTreeComesBack(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		tree, err := New(Options{SpoolDir: os.TempDir()})
		if err != nil {
			r.Fatal(err)
		}
		defer tree.Close()
		want := map[string]string{}
		component := rapid.StringMatching(`[a-c]|[x-z]{1,255}|[^/\x00]{1,20}`)
		for range rapid.IntRange(0, 60).Draw(r, "count") {
			p := "/" + strings.Join(rapid.SliceOfN(component, 1, 4).Draw(r, "path"), "/")
			content := strings.Repeat(rapid.String().Draw(r, "content"), rapid.IntRange(0, 3000).Draw(r, "times"))
			if tree.Add(file(p, content)) == nil {
				for old := range want {
					if strings.HasPrefix(old, p+"/") {
						delete(want, old)
					}
				}
				want[path.Clean(p)] = content
			}
		}
		f, err := os.CreateTemp("", "layer-*")
		if err != nil {
			r.Fatal(err)
		}
		defer os.Remove(f.Name())
		defer f.Close()
		if _, err := tree.Write(context.Background(), f); err != nil {
			r.Fatal(err)
		}
		got := map[string]string{}
		for p, n := range read(t, f.Name()) {
			if n.Mode&unix.S_IFMT == unix.S_IFREG {
				got[p] = n.Data
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			r.Fatal(d)
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	tree := newTree(b, Limits{})
	block := strings.Repeat("some content of a file, ", 1<<20/24)
	for i := range 256 {
		add(b, tree, file(fmt.Sprintf("d%d/f%d", i%16, i), block))
	}
	b.SetBytes(256 << 20)
	for b.Loop() {
		f, err := os.Create(filepath.Join(b.TempDir(), "layer.erofs"))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := tree.Write(context.Background(), f); err != nil {
			b.Fatal(err)
		}
		f.Close()
		os.Remove(f.Name())
	}
}
