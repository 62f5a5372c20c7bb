package cli

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestArchiveRoundTrip(t *testing.T) {
	src := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(src, "sub/empty"), 0o755))
	must(t, os.WriteFile(filepath.Join(src, "sub/run"), []byte("#!/bin/sh\n"), 0o755))
	must(t, os.WriteFile(filepath.Join(src, "bin"), bytes.Repeat([]byte{0, 255, 13}, 70_000), 0o600))
	must(t, os.Symlink("sub/run", filepath.Join(src, "link")))

	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	must(t, packInto(w, src, "."))
	must(t, w.Close())

	dst := t.TempDir()
	root, err := os.OpenRoot(dst)
	must(t, err)
	defer root.Close()
	must(t, unpackTo(root, "out", tar.NewReader(&buf), func(name string) { t.Errorf("left out %s", name) }))

	for _, name := range []string{"bin", "sub/run"} {
		want, err := os.ReadFile(filepath.Join(src, name))
		must(t, err)
		got, err := os.ReadFile(filepath.Join(dst, "out", name))
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs", name)
		}
	}
	if fi, err := os.Stat(filepath.Join(dst, "out/sub/run")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("mode of sub/run: %v %v", fi, err)
	}
	if target, err := os.Readlink(filepath.Join(dst, "out/link")); err != nil || target != "sub/run" {
		t.Errorf("link leads to %q, %v", target, err)
	}
	if fi, err := os.Stat(filepath.Join(dst, "out/sub/empty")); err != nil || !fi.IsDir() {
		t.Errorf("sub/empty: %v %v", fi, err)
	}
}

// TestUnpackStaysInside: a sandbox's archive cannot write anywhere else.
func TestUnpackStaysInside(t *testing.T) {
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	attacks := map[string][]tar.Header{
		"dotdot":          {{Name: "../victim", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1}},
		"absolute":        {{Name: victim, Typeflag: tar.TypeReg, Mode: 0o644, Size: 1}},
		"through a link":  {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "l/victim", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1}},
		"through two":     {{Name: "a", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "b", Typeflag: tar.TypeSymlink, Linkname: "a/.."}, {Name: "b/victim", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1}},
		"over a link":     {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: victim}, {Name: "l", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1}},
		"hard link":       {{Name: "h", Typeflag: tar.TypeLink, Linkname: "../../etc/passwd"}},
		"directory modes": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "l", Typeflag: tar.TypeDir, Mode: 0o777}},
	}
	for name, headers := range attacks {
		t.Run(name, func(t *testing.T) {
			var buf bytes.Buffer
			w := tar.NewWriter(&buf)
			for _, h := range headers {
				must(t, w.WriteHeader(&h))
				if h.Size > 0 {
					_, err := w.Write([]byte("x"))
					must(t, err)
				}
			}
			must(t, w.Close())
			root, err := os.OpenRoot(t.TempDir())
			must(t, err)
			defer root.Close()
			before, err := os.Stat(outside)
			must(t, err)
			// Whether it is refused or harmless is up to the attack.
			_ = unpackTo(root, "out", tar.NewReader(&buf), func(string) {})
			if _, err := os.Lstat(victim); err == nil {
				t.Error("wrote outside")
			}
			after, err := os.Stat(outside)
			must(t, err)
			if before.Mode() != after.Mode() {
				t.Error("changed a mode outside")
			}
		})
	}
}

func TestUnpackLeavesOutDevices(t *testing.T) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	must(t, w.WriteHeader(&tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}))
	must(t, w.WriteHeader(&tar.Header{Name: "suid", Typeflag: tar.TypeReg, Mode: 0o4755}))
	must(t, w.Close())
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	var skipped []string
	must(t, unpackTo(root, "out", tar.NewReader(&buf), func(name string) { skipped = append(skipped, name) }))
	if len(skipped) != 1 || skipped[0] != "null" {
		t.Errorf("skipped %v", skipped)
	}
	fi, err := os.Stat(filepath.Join(dir, "out/suid"))
	must(t, err)
	if fi.Mode()&fs.ModeSetuid != 0 {
		t.Error("the setuid bit came out of the sandbox")
	}
}

func TestPackRefusesWhatItCannotCopy(t *testing.T) {
	dir := t.TempDir()
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	if err := packInto(tar.NewWriter(&bytes.Buffer{}), dir, "x"); err == nil {
		t.Error("packed a FIFO")
	}
}

func FuzzUnpack(f *testing.F) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	_ = w.WriteHeader(&tar.Header{Name: "a/b", Typeflag: tar.TypeReg, Mode: 0o644, Size: 3})
	_, _ = w.Write([]byte("abc"))
	_ = w.Close()
	f.Add(buf.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		inner := filepath.Join(dir, "inner")
		must(t, os.Mkdir(inner, 0o755))
		root, err := os.OpenRoot(inner)
		must(t, err)
		defer root.Close()
		_ = unpackTo(root, "out", tar.NewReader(bytes.NewReader(data)), func(string) {})
		entries, err := os.ReadDir(dir)
		must(t, err)
		if len(entries) != 1 {
			t.Fatalf("wrote outside: %v", entries)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
