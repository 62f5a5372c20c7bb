//go:build linux && !race

package compat

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/glovebox-dev/glovebox/test/testserver"
)

const testImage = "example/tool:1"

// importTestImage makes an image of this machine's shell, with a tool on a
// PATH of its own, a user and a working directory, and imports it. It returns
// the reference.
func importTestImage(t *testing.T, server *testserver.Server) string {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "image.tar")
	tag, err := name.NewTag(testImage)
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(archive, tag, buildTestImage(t)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(server.Bin, "image", "import", archive, testImage, "--data-dir", server.DataDir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return testImage
}

func buildTestImage(t *testing.T) v1.Image {
	t.Helper()
	root := new(bytes.Buffer)
	files := newRootfs(t, root)
	for _, dir := range []string{"opt", "opt/tools", "opt/tools/bin", "bin", "usr", "usr/bin", "etc", "tmp", "root"} {
		files.dir(dir, 0, 0o755)
	}
	files.dir("job", 1234, 0o755)
	files.file("opt/tools/bin/mytool", 0o755, []byte("#!/bin/sh\necho tool\n"))
	files.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nworker:x:1234:1234::/job:/bin/sh\n"))
	files.file("etc/group", 0o644, []byte("root:x:0:\nworker:x:1234:\n"))
	files.program("/bin/sh", "bin/sh")
	files.program("/usr/bin/id", "usr/bin/id")
	files.program("/bin/cat", "bin/cat")
	files.close()

	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(root.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", elfArchitecture(t)
	config.Config = v1.Config{
		Env:        []string{"PATH=/opt/tools/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "FOO=bar"},
		User:       "worker",
		WorkingDir: "/job",
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	return image
}

func elfArchitecture(t *testing.T) string {
	t.Helper()
	f, err := elf.Open("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}[f.Machine]
}

// rootfs writes the files of an image.
type rootfs struct {
	t    *testing.T
	out  *tar.Writer
	made []string
}

func newRootfs(t *testing.T, w io.Writer) *rootfs {
	return &rootfs{t: t, out: tar.NewWriter(w)}
}

func (r *rootfs) close() {
	if err := r.out.Close(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rootfs) dir(path string, owner int, mode int64) {
	r.t.Helper()
	r.made = append(r.made, path)
	r.write(tar.Header{Name: path + "/", Typeflag: tar.TypeDir, Mode: mode, Uid: owner, Gid: owner}, nil)
}

func (r *rootfs) file(path string, mode int64, content []byte) {
	r.t.Helper()
	r.made = append(r.made, path)
	r.write(tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content))}, content)
}

func (r *rootfs) write(h tar.Header, content []byte) {
	r.t.Helper()
	if err := r.out.WriteHeader(&h); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.out.Write(content); err != nil {
		r.t.Fatal(err)
	}
}

// program copies a program of this machine to the image, with the loader and
// the libraries that it needs.
func (r *rootfs) program(from, to string) {
	r.t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		r.t.Fatal(err)
	}
	r.file(to, 0o755, content)
	for _, needed := range r.needs(from) {
		if !slices.Contains(r.made, needed[1:]) {
			r.parents(needed[1:])
			r.program(needed, needed[1:])
		}
	}
}

func (r *rootfs) parents(path string) {
	r.t.Helper()
	for i := range path {
		if dir := path[:i]; path[i] == '/' && !slices.Contains(r.made, dir) {
			r.dir(dir, 0, 0o755)
		}
	}
}

// needs lists the files that the loader would open for a program or library.
func (r *rootfs) needs(path string) []string {
	r.t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		r.t.Fatal(fmt.Errorf("open %s: %w", path, err))
	}
	defer f.Close()
	var all []string
	for _, prog := range f.Progs {
		if prog.Type == elf.PT_INTERP {
			name := make([]byte, prog.Filesz)
			if _, err := prog.ReadAt(name, 0); err != nil {
				r.t.Fatal(err)
			}
			all = append(all, string(bytes.TrimRight(name, "\x00")))
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, library := range libraries {
		all = append(all, r.find(library))
	}
	return all
}

func (r *rootfs) find(library string) string {
	r.t.Helper()
	for _, pattern := range []string{"/lib64/", "/lib/*-linux-gnu/", "/usr/lib/*-linux-gnu/", "/usr/lib64/", "/lib/", "/usr/lib/"} {
		if found, _ := filepath.Glob(pattern + library); len(found) > 0 {
			return found[0]
		}
	}
	r.t.Fatalf("library %s is not on this machine", library)
	return ""
}
