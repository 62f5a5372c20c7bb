package image

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// importSmall makes an image that differs from others by its content.
func importSmall(t testing.TB, s *Store, ref, content string) Image {
	t.Helper()
	img, err := s.Import(ctx, saveFile(t, saved(t, "any:name", small(t, content))), ImportOptions{Ref: ref})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestNamesMove(t *testing.T) {
	used := map[string]bool{}
	s := openStore(t, Options{InUse: func(d string) bool { return used[d] }})
	one := importSmall(t, s, "app", "1")
	used[one.Digest] = true
	two := importSmall(t, s, "app", "2")
	three := importSmall(t, s, "app", "3")
	if got, err := s.Get("app"); err != nil || got.Digest != three.Digest {
		t.Errorf("the name leads to %s: %v", got.Digest, err)
	}
	if got, err := s.Get(one.Digest); err != nil || got.Digest != one.Digest {
		t.Errorf("an image in use is gone: %v", err)
	}
	if _, err := s.Get(two.Digest); !errors.Is(err, ErrNotFound) || exists(two.Layers[0].Path) {
		t.Errorf("an image that nothing names or uses stays: %v", err)
	}
	used[one.Digest] = false
	if err := s.Prune(); err != nil {
		t.Fatal(err)
	}
	if exists(one.Layers[0].Path) || !exists(three.Layers[0].Path) {
		t.Error("prune took the wrong image")
	}
	oneOf(t, s)
	assertNothingLeft(t, s)
}

func TestRemove(t *testing.T) {
	inUse := true
	s := openStore(t, Options{InUse: func(string) bool { return inUse }})
	img := importSmall(t, s, "a", "1")
	importSmall(t, s, "b", "1") // the same image by another name
	if d, err := s.Inspect("b"); err != nil || !slices.Equal(d.Names, []string{"docker.io/library/a:latest", "docker.io/library/b:latest"}) || d.DiskBytes == 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if err := s.Remove("a"); err != nil {
		t.Errorf("one of two names: %v", err)
	}
	if got, err := s.Get("b"); err != nil || got.Reference != "docker.io/library/b:latest" {
		t.Errorf("%s, %v", got.Reference, err)
	}
	if err := s.Remove("b"); !errors.Is(err, ErrInUse) {
		t.Errorf("in use: %v", err)
	}
	inUse = false
	if err := s.Remove(img.Digest); err != nil {
		t.Error(err)
	}
	if err := s.Remove("b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("twice: %v", err)
	}
	if u, err := s.DiskUse(); err != nil || u != (Usage{}) {
		t.Errorf("%+v, %v", u, err)
	}
	assertNothingLeft(t, s)
}

func TestSharedLayersStay(t *testing.T) {
	s := openStore(t, Options{})
	plain := importSmall(t, s, "plain", "same")
	img := makeImage(t, v1.Config{WorkingDir: "/elsewhere"}, gzipLayer(tarOf(t, "f=same")))
	other, err := s.Import(ctx, saveFile(t, saved(t, "other:v1", img)), ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if other.Digest == plain.Digest || other.Layers[0].Digest != plain.Layers[0].Digest {
		t.Fatal("expected two images of one layer")
	}
	if u, err := s.DiskUse(); err != nil || u.Images != 2 || u.Layers != 1 || u.Bytes == 0 || u.Unused != 0 {
		t.Errorf("%+v, %v", u, err)
	}
	if err := s.Remove("plain"); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(ctx, "other:v1"); err != nil {
		t.Errorf("the other image lost its layer: %v", err)
	}
}

func TestDamageIsTold(t *testing.T) {
	s := openStore(t, Options{})
	img := importSmall(t, s, "a", "1")
	if err := os.Chmod(img.Layers[0].Path, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(img.Layers[0].Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("x"), img.Layers[0].Size-1); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(ctx, "a"); !errors.Is(err, ErrArchive) || !strings.Contains(err.Error(), "changed on disk") {
		t.Errorf("a changed layer: %v", err)
	}
	if err := f.Truncate(100); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := s.Get(img.Digest); err == nil || !strings.Contains(err.Error(), "100 bytes instead of") {
		t.Errorf("a cut layer: %v", err)
	}
	if err := os.Remove(img.Layers[0].Path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a lost layer: %v", err)
	}
	if got := importSmall(t, s, "a", "1"); !exists(got.Layers[0].Path) {
		t.Error("importing again does not mend it")
	}
	if err := os.WriteFile(s.recordPath(img.Digest), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if all, err := s.List(); err != nil || len(all) != 0 {
		t.Errorf("a broken record: %d images, %v", len(all), err)
	}
}

func TestLink(t *testing.T) {
	seed := openStore(t, Options{})
	a := importSmall(t, seed, "a", "1")
	importSmall(t, seed, "a2", "1")
	importSmall(t, seed, "b", "2")
	s := openStore(t, Options{})
	for range 2 {
		if err := s.Link(seed.dir); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.List()
	if err != nil || len(all) != 2 {
		t.Fatalf("%d images, %v", len(all), err)
	}
	for _, ref := range []string{"a", "a2", "b"} {
		want, err := seed.Get(ref)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(ref)
		if err != nil || got.Digest != want.Digest || !strings.HasPrefix(got.Layers[0].Path, s.dir) {
			t.Errorf("%s: %s, %v", ref, got.Layers[0].Path, err)
		}
		if err := s.Verify(ctx, ref); err != nil {
			t.Error(err)
		}
	}
	if err := s.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("a2"); err != nil {
		t.Fatal(err)
	}
	if !exists(a.Layers[0].Path) {
		t.Error("removing a link took the seed's layer")
	}
	if err := s.Link(filepath.Join(t.TempDir(), "nothing")); err != nil {
		t.Errorf("an empty seed: %v", err)
	}
}

func TestLeftoversGoAtOpen(t *testing.T) {
	dir := t.TempDir()
	s := openStoreAt(t, dir, Options{})
	partial := filepath.Join(dir, "layers", "partial")
	if err := os.MkdirAll(filepath.Join(partial, "123", "tree"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(partial, "123", "half"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	openStoreAt(t, dir, Options{})
	if exists(filepath.Join(partial, "123")) {
		t.Error("leftovers of a dead process are still there")
	}
	if !exists(s.scratch.Path()) {
		t.Error("the directory of a living process is gone")
	}
	importSmall(t, s, "a", "1")
}

func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts a small file system, which needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := openStoreAt(t, dir, Options{})
	big := strings.Repeat("full disk ", 200_000)
	from := saveFile(t, saved(t, "a:b", small(t, big)))
	_, err := s.Import(ctx, from, ImportOptions{})
	if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), dir) {
		t.Errorf("error %v", err)
	}
	assertNothingLeft(t, s)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Bfree < st.Blocks*9/10 {
		t.Errorf("%d of %d blocks are free, %v", st.Bfree, st.Blocks, err)
	}
}

func TestOpenErrors(t *testing.T) {
	f := saveFile(t, nil)
	if _, err := Open(f, Options{}); err == nil || !strings.Contains(err.Error(), f) {
		t.Errorf("a file as data directory: %v", err)
	}
}

func TestCanonical(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for ref, want := range map[string]string{
		"":                              DefaultReference,
		"node24":                        DefaultReference,
		"node22":                        DefaultReference,
		"python3.13":                    DefaultReference,
		"vercel/sandbox/universal":      DefaultReference,
		"glovebox/universal":            DefaultReference,
		"glovebox/universal:latest":     DefaultReference,
		"python:3.12-slim":              "docker.io/library/python:3.12-slim",
		"alpine":                        "docker.io/library/alpine:latest",
		"team/app":                      "docker.io/team/app:latest",
		"docker.io/team/app:v1":         "docker.io/team/app:v1",
		"localhost:5000/a":              "localhost:5000/a:latest",
		"example.com/a/b/c@" + digest:   "example.com/a/b/c@" + digest,
		digest:                          digest,
		DefaultReference + "@" + digest: digest,
		"node":                          "docker.io/library/node:latest",
	} {
		got, err := Canonical(ref)
		if err != nil || got != want {
			t.Errorf("%q: %q, %v", ref, got, err)
		}
		if again, err := Canonical(got); err != nil || again != got {
			t.Errorf("%q is not canonical: %q, %v", got, again, err)
		}
	}
	for _, ref := range []string{"UPPER", "a b", "a:", "/a", "glovebox/", "glovebox/node", "a@sha256:12", "../a", "a//b", "x/../b", "a\x00b"} {
		if got, err := Canonical(ref); !errors.Is(err, ErrInvalidReference) {
			t.Errorf("%q: %q, %v", ref, got, err)
		}
	}
}

// What tells what a sandbox was made from finds it again, whatever name the
// image was made by.
func TestPinned(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for reference, want := range map[string]string{
		"docker.io/library/a:v1":                                 "docker.io/library/a:v1@" + digest,
		"docker.io/library/a@sha256:" + strings.Repeat("0b", 32): "docker.io/library/a@" + digest,
		DefaultReference:                                         DefaultReference + "@" + digest,
	} {
		if got := (Image{Reference: reference, Digest: digest}).Pinned(); got != want {
			t.Errorf("%s: %s", reference, got)
		}
	}
	s := openStore(t, Options{})
	img, err := s.save(Image{Reference: "docker.io/library/a:v1", Digest: digest}, "docker.io/library/a:v1")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(img.Pinned()); err != nil || got.Digest != digest {
		t.Errorf("%s: %v, %v", img.Pinned(), got.Digest, err)
	}
}

func TestResolveUser(t *testing.T) {
	s := openStore(t, Options{})
	const db = passwd + "broken line\nodd:x:notanumber:5:::\nshort:x:7:8:::\n12:x:4000:4000::/twelve:\n"
	img := func(user string) (Config, error) {
		got, err := s.Import(ctx, saveFile(t, saved(t, "any:name", makeImage(t, v1.Config{User: user}, gzipLayer(tarOf(t, "etc/passwd="+db, "etc/group="+group))))), ImportOptions{})
		return got.Config, err
	}
	for spec, want := range map[string]User{
		"":             {Name: "root", Home: "/root"},
		"root":         {Name: "root", Home: "/root"},
		"0":            {Name: "root", Home: "/root"},
		"node":         {Name: "node", UID: 1000, GID: 1001, Groups: []uint32{77, 29}, Home: "/home/node"},
		"1000":         {Name: "node", UID: 1000, GID: 1001, Groups: []uint32{77, 29}, Home: "/home/node"},
		"node:docker":  {Name: "node", UID: 1000, GID: 77, Home: "/home/node"},
		"node:5000":    {Name: "node", UID: 1000, GID: 5000, Home: "/home/node"},
		"31337":        {Name: "31337", UID: 31337, Home: "/"},
		"31337:31338":  {Name: "31337", UID: 31337, GID: 31338, Home: "/"},
		":audio":       {Name: "root", GID: 29, Home: "/root"},
		"short":        {Name: "short", UID: 7, GID: 8, Home: "/"},
		"4294967295:0": {Name: "4294967295", UID: 4294967295, Home: "/"},
		"12":           {Name: "12", UID: 4000, GID: 4000, Home: "/twelve"},
	} {
		c, err := img(spec)
		if d := cmp.Diff(want, c.User); err != nil || d != "" {
			t.Errorf("%q: %v %s", spec, err, d)
		}
	}
	for _, spec := range []string{"nobody", "node:wheel", "-1", "4294967296", "odd"} {
		if c, err := img(spec); !errors.Is(err, ErrArchive) {
			t.Errorf("%q: %+v, %v", spec, c.User, err)
		}
	}
}
