package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// member is an entry of an archive under test, in the notation "d dir",
// "f file content", "s link target", "h name target".
func archive(t testing.TB, members ...string) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range members {
		part := strings.SplitN(m, " ", 3)
		h := &tar.Header{Name: part[1], Mode: 0o644, ModTime: noon, Format: tar.FormatPAX}
		body := ""
		switch part[0] {
		case "d":
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		case "f":
			h.Typeflag = tar.TypeReg
			if len(part) > 2 {
				body = part[2]
			}
			h.Size = int64(len(body))
		case "s":
			h.Typeflag, h.Linkname = tar.TypeSymlink, part[2]
		case "h":
			h.Typeflag, h.Linkname = tar.TypeLink, part[2]
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, body)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

func apply(t testing.TB, tree *Tree, members ...string) {
	t.Helper()
	if err := tree.Apply(context.Background(), archive(t, members...)); err != nil {
		t.Fatal(err)
	}
}

// show lists a tree as "/dir/ /file=content /link->target".
func show(t testing.TB, tree *Tree) []string {
	t.Helper()
	name, _ := write(t, tree)
	var out []string
	for p, n := range read(t, name) {
		switch n.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			p = strings.TrimSuffix(p, "/") + "/"
		case unix.S_IFREG:
			p += "=" + n.Data
		case unix.S_IFLNK:
			p += "->" + n.Data
		}
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

func TestApply(t *testing.T) {
	base := []string{"d a", "f a/1 one", "f a/2 two", "d a/sub", "f a/sub/3 three", "d b", "f b/4 four", "s l a"}
	tests := []struct {
		name   string
		layers [][]string
		want   string
	}{
		{"plain", [][]string{base}, "/ /a/ /a/1=one /a/2=two /a/sub/ /a/sub/3=three /b/ /b/4=four /l->a"},
		{"leading dots and slashes", [][]string{{"d ./", "f ./x 1", "f /y 2", "f ./d//z 3"}}, "/ /d/ /d/z=3 /x=1 /y=2"},
		{"file removed", [][]string{base, {"f a/.wh.1"}}, "/ /a/ /a/2=two /a/sub/ /a/sub/3=three /b/ /b/4=four /l->a"},
		{"tree removed", [][]string{base, {"f .wh.a", "f .wh.l"}}, "/ /b/ /b/4=four"},
		{"nothing there to remove", [][]string{base, {"f .wh.x", "f x/.wh.y", "f l/.wh.1", "f .wh..wh.plnk"}}, "/ /a/ /a/1=one /a/2=two /a/sub/ /a/sub/3=three /b/ /b/4=four /l->a"},
		{"removed, then made", [][]string{base, {"f .wh.a", "d a", "f a/new n"}}, "/ /a/ /a/new=n /b/ /b/4=four /l->a"},
		{"made, then removed", [][]string{base, {"d a", "f a/new n", "f .wh.a"}}, "/ /a/ /a/new=n /b/ /b/4=four /l->a"},
		{"opaque first", [][]string{base, {"d a", "f a/.wh..wh..opq", "f a/new n"}}, "/ /a/ /a/new=n /b/ /b/4=four /l->a"},
		{"opaque last", [][]string{base, {"d a", "f a/sub/new n", "f a/.wh..wh..opq"}}, "/ /a/ /a/sub/ /a/sub/new=n /b/ /b/4=four /l->a"},
		{"opaque root", [][]string{base, {"f .wh..wh..opq", "f new n"}}, "/ /new=n"},
		{"file over directory", [][]string{base, {"f a file"}}, "/ /a=file /b/ /b/4=four /l->a"},
		{"directory over file", [][]string{base, {"d a/1", "f a/1/x y"}}, "/ /a/ /a/1/ /a/1/x=y /a/2=two /a/sub/ /a/sub/3=three /b/ /b/4=four /l->a"},
		{"directory over link", [][]string{base, {"d l", "f l/x y"}}, "/ /a/ /a/1=one /a/2=two /a/sub/ /a/sub/3=three /b/ /b/4=four /l/ /l/x=y"},
		{"implied directory over link", [][]string{base, {"f l/x y"}}, "/ /a/ /a/1=one /a/2=two /a/sub/ /a/sub/3=three /b/ /b/4=four /l/ /l/x=y"},
		{"directory again", [][]string{base, {"d a"}}, "/ /a/ /a/1=one /a/2=two /a/sub/ /a/sub/3=three /b/ /b/4=four /l->a"},
		{"the last of two", [][]string{{"f x 1", "f x 2"}}, "/ /x=2"},
		{"hard link to an earlier layer", [][]string{base, {"h h a/1", "f a/.wh.1"}}, "/ /a/ /a/2=two /a/sub/ /a/sub/3=three /b/ /b/4=four /h=one /l->a"},
		{"whiteout of an earlier whiteout", [][]string{{"f x 1"}, {"f .wh.x"}, {"f x 2"}}, "/ /x=2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := newTree(t, Limits{})
			for _, l := range tt.layers {
				apply(t, tree, l...)
			}
			if d := cmp.Diff(strings.Fields(tt.want), show(t, tree)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestApplyKeepsAttributes(t *testing.T) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range []*tar.Header{
		{Name: "f", Typeflag: tar.TypeReg, Mode: 0o4711, Uid: 1000, Gid: 2000, ModTime: noon, Format: tar.FormatPAX, PAXRecords: map[string]string{
			paxXattr + "user.mime": "text\x00plain", paxXattr + "security.capability": "\x01\x02",
			paxXattr + "security.selinux": "dropped", paxXattr + "trusted.overlay.opaque": "y",
		}},
		{Name: "null", Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 1, Devminor: 3},
		{Name: "disk", Typeflag: tar.TypeBlock, Mode: 0o660, Devmajor: 8, Devminor: 1},
		{Name: "fifo", Typeflag: tar.TypeFifo, Mode: 0o600},
		{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "x"}},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	tree := newTree(t, Limits{})
	if err := tree.Apply(context.Background(), &buf); err != nil {
		t.Fatal(err)
	}
	name, _ := write(t, tree)
	got := read(t, name)
	if n := got["/f"]; n.Mode != unix.S_IFREG|0o4711 || n.UID != 1000 || n.GID != 2000 || !n.MTime.Equal(noon) {
		t.Errorf("%+v", n)
	}
	for p, mode := range map[string]uint16{"/null": unix.S_IFCHR | 0o666, "/disk": unix.S_IFBLK | 0o660, "/fifo": unix.S_IFIFO | 0o600} {
		if got[p].Mode != mode {
			t.Errorf("%s has mode %#o, want %#o", p, got[p].Mode, mode)
		}
	}
	want := map[string]map[string][]byte{"/f": {"user.mime": []byte("text\x00plain"), "security.capability": {1, 2}}}
	if d := cmp.Diff(want, tree.Xattrs()); d != "" {
		t.Error(d)
	}
}

func TestHostileArchives(t *testing.T) {
	long := strings.Repeat("n", maxName+1)
	deep := strings.Repeat("d/", maxPath/2+1)
	tests := []struct {
		name    string
		members []string
		want    string // part of the message
	}{
		{"parent", []string{"f ../x 1"}, "names with .."},
		{"parent inside", []string{"f a/../x 1"}, "names with .."},
		{"parent as directory", []string{"d .."}, "names with .."},
		{"whiteout of parent", []string{"f .wh..."}, "whiteout without a name"},
		{"whiteout of nothing", []string{"f .wh."}, "whiteout without a name"},
		{"through a link out", []string{"s l /etc", "f l/passwd x"}, "/l is a symbolic link"},
		{"through a link up", []string{"s l ../..", "d l/x"}, "/l is a symbolic link"},
		{"through two links", []string{"d a", "s a/l /", "f a/l/b/c x"}, "/a/l is a symbolic link"},
		{"below a file", []string{"f x 1", "f x/y 2"}, "/x is a file"},
		{"hard link outside", []string{"h x ../../etc/passwd"}, "names with .."},
		{"hard link to host", []string{"h x /etc/passwd"}, "which the archive does not have"},
		{"hard link through link", []string{"s l /", "h x l/etc/passwd"}, "which the archive does not have"},
		{"hard link to directory", []string{"d d", "h x d"}, "which is a directory"},
		{"hard link to itself", []string{"h x x"}, "which the archive does not have"},
		{"root replaced", []string{"f . x"}, "the root of the tree"},
		{"root linked", []string{"s ./ /etc"}, "the root of the tree"},
		{"long name", []string{"f " + long + " x"}, "component of 256 bytes"},
		{"long path", []string{"d " + deep}, "name of 4096 bytes"},
		{"long target", []string{"s l " + strings.Repeat("t", maxTarget+1)}, "symbolic link with a target"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := newTree(t, Limits{})
			err := tree.Apply(context.Background(), archive(t, tt.members...))
			if !errors.Is(err, ErrArchive) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			if err != nil && len(err.Error()) > 600 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestBrokenArchives(t *testing.T) {
	whole := archive(t, "f a "+strings.Repeat("x", 3000), "f b y").Bytes()
	for name, b := range map[string][]byte{
		"cut in content": whole[:2000],
		"cut in header":  whole[:512*3+100+3072-1536],
		"garbage":        bytes.Repeat([]byte("garbage!"), 200),
	} {
		tree := newTree(t, Limits{})
		if err := tree.Apply(context.Background(), bytes.NewReader(b)); !errors.Is(err, ErrArchive) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	tree := newTree(t, Limits{})
	broken := errors.New("cable pulled")
	err := tree.Apply(context.Background(), io.MultiReader(bytes.NewReader(whole[:1000]), errReader{broken}))
	if !errors.Is(err, broken) || errors.Is(err, ErrArchive) {
		t.Errorf("an unreadable source gives %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := tree.Apply(ctx, bytes.NewReader(whole)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context gives %v", err)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestLimits(t *testing.T) {
	tests := []struct {
		name    string
		limits  Limits
		members []string
		ok      bool
	}{
		{"entries at the limit", Limits{Entries: 2}, []string{"d a", "d b"}, true},
		{"too many entries", Limits{Entries: 2}, []string{"d a", "d b", "d c"}, false},
		{"too many links", Limits{Entries: 2}, []string{"f a 1", "h b a", "h c a"}, false},
		{"too many whiteouts", Limits{Entries: 2}, []string{"f .wh.a", "f .wh.b", "f .wh.c"}, false},
		{"content", Limits{Bytes: 100_000}, []string{"f a " + strings.Repeat("x", 60_000), "f a " + strings.Repeat("x", 60_000)}, false},
		{"archive", Limits{Bytes: 10_000}, []string{"d 1", "d 2", "d 3", "d 4", "d 5", "d 6", "d 7", "d 8", "d 9", "d 10"}, false},
	}
	for _, tt := range tests {
		err := newTree(t, tt.limits).Apply(context.Background(), archive(t, tt.members...))
		if tt.ok && err != nil || !tt.ok && (!errors.Is(err, ErrTooLarge) || !errors.Is(err, ErrArchive)) {
			t.Errorf("%s: error %v", tt.name, err)
		}
	}
	tree := newTree(t, Limits{XattrBytes: 10})
	e := file("f", "")
	e.Xattrs = map[string][]byte{"user.long": make([]byte, 10)}
	if err := tree.Add(e); !errors.Is(err, ErrTooLarge) {
		t.Errorf("attributes: error %v", err)
	}
	// A header may promise what the archive does not hold.
	var buf bytes.Buffer
	tar.NewWriter(&buf).WriteHeader(&tar.Header{Name: "bomb", Typeflag: tar.TypeReg, Size: 1 << 40})
	if err := newTree(t, Limits{}).Apply(context.Background(), &buf); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a file of 1 TiB: error %v", err)
	}
}

func TestApplyDir(t *testing.T) {
	src := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(src, "d/e"), 0o755))
	must(os.WriteFile(filepath.Join(src, "d/f"), []byte("content"), 0o600))
	must(os.Chmod(filepath.Join(src, "d/f"), 0o751|os.ModeSetuid))
	must(os.Link(filepath.Join(src, "d/f"), filepath.Join(src, "hard")))
	must(os.Symlink("/etc/passwd", filepath.Join(src, "d/l")))
	must(os.Symlink("/", filepath.Join(src, "root")))
	must(os.WriteFile(filepath.Join(src, "bad\xffname"), nil, 0o644))
	must(unix.Mkfifo(filepath.Join(src, "fifo"), 0o600))
	must(os.Chtimes(filepath.Join(src, "d/f"), noon, noon))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(err)
	defer unix.Close(fd)
	must(unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(src, "socket")}))
	xattrs := unix.Setxattr(filepath.Join(src, "d/f"), "user.k", []byte("v"), 0) == nil

	tree := newTree(t, Limits{})
	must(tree.ApplyDir(context.Background(), src))
	name, _ := write(t, tree)
	got := read(t, name)
	want := []string{"/", "/bad\xffname", "/d", "/d/e", "/d/f", "/d/l", "/fifo", "/hard", "/root"}
	if !slices.Equal(names(got), want) {
		t.Errorf("%q", names(got))
	}
	f := got["/d/f"]
	if f.Mode != unix.S_IFREG|0o4751 || f.UID != uint32(os.Getuid()) || !f.MTime.Equal(noon) || f.Data != "content" || f.nid != got["/hard"].nid {
		t.Errorf("%+v", f)
	}
	if xattrs && string(tree.Xattrs()["/hard"]["user.k"]) != "v" {
		t.Errorf("attributes: %v", tree.Xattrs())
	}
	if err := newTree(t, Limits{}).ApplyDir(context.Background(), filepath.Join(src, "d/f")); err == nil {
		t.Error("a file was taken for a directory")
	}
}

func TestReadFile(t *testing.T) {
	tree := newTree(t, Limits{})
	add(t, tree, file("etc/passwd", "root:x:0:0"), link("abs", "/etc/passwd"), link("up", "../../../etc/passwd"),
		link("e", "etc"), link("loop", "loop"), link("dangling", "/nowhere"))
	for _, p := range []string{"/etc/passwd", "abs", "up", "e/passwd", "e/../etc/./passwd"} {
		if b, err := tree.ReadFile(p, 100); err != nil || string(b) != "root:x:0:0" {
			t.Errorf("%s: %q, %v", p, b, err)
		}
	}
	for _, p := range []string{"/etc/group", "dangling", "etc/passwd/x"} {
		if _, err := tree.ReadFile(p, 100); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", p, err)
		}
	}
	for _, p := range []string{"loop", "etc"} {
		if _, err := tree.ReadFile(p, 100); err == nil {
			t.Errorf("%s could be read", p)
		}
	}
	if _, err := tree.ReadFile("abs", 5); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a file over the limit: %v", err)
	}
}

// Whatever the bytes, Apply ends with an error or with a tree that can be
// written and read.
func FuzzApply(f *testing.F) {
	f.Add(archive(f, "d a", "f a/1 one", "s l a", "h h a/1").Bytes(), archive(f, "f a/.wh.1", "f a/.wh..wh..opq", "f l/x y").Bytes())
	f.Add(archive(f, "f x 1", "f x/y 2").Bytes(), []byte("not an archive"))
	f.Add(archive(f, "d ./", "f /abs 1", "f ../up 2").Bytes(), archive(f, "h a /etc/passwd").Bytes())
	f.Fuzz(func(t *testing.T, one, two []byte) {
		tree := newTree(t, Limits{Bytes: 1 << 20, Entries: 1000, XattrBytes: 1 << 10})
		for _, b := range [][]byte{one, two} {
			if err := tree.Apply(context.Background(), bytes.NewReader(b)); err != nil {
				if !errors.Is(err, ErrArchive) {
					t.Fatalf("%v is not the archive's fault", err)
				}
				return
			}
		}
		out, err := os.Create(filepath.Join(t.TempDir(), "layer.erofs"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if _, err := tree.Write(context.Background(), out); err != nil {
			t.Fatal(err)
		}
		read(t, out.Name())
		tree.Xattrs()
	})
}

func BenchmarkApply(b *testing.B) {
	var members []string
	body := strings.Repeat("0123456789abcdef", 1<<10)
	for i := range 4000 {
		members = append(members, fmt.Sprintf("f d%d/f%d %s", i%50, i, body))
	}
	raw := archive(b, members...).Bytes()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		tree := newTree(b, Limits{})
		if err := tree.Apply(context.Background(), bytes.NewReader(raw)); err != nil {
			b.Fatal(err)
		}
		tree.Close()
	}
}
