package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/glovebox-dev/glovebox/internal/layer"
)

// saved is what "docker save" writes.
func saved(t testing.TB, tag string, img v1.Image) []byte {
	t.Helper()
	ref, err := name.NewTag(tag)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := tarball.Write(ref, img, &buf); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// ociLayout writes an OCI layout; one index leads to another as buildx has it.
func ociLayout(t testing.TB, img v1.Image, annotations map[string]string) string {
	t.Helper()
	inner := mutate.IndexMediaType(mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img}), types.OCIImageIndex)
	outer := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: inner, Descriptor: v1.Descriptor{Annotations: annotations}})
	dir := t.TempDir()
	if _, err := layout.Write(dir, outer); err != nil {
		t.Fatal(err)
	}
	return dir
}

func tarDir(t testing.TB, dir string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestImport(t *testing.T) {
	img := sample(t)
	docker := saved(t, "team/app:v1", img)
	oci := ociLayout(t, img, map[string]string{"io.containerd.image.name": "docker.io/team/app:v1"})
	for kind, from := range map[string]string{
		"docker save":       saveFile(t, docker),
		"docker save, gzip": saveFile(t, gzipped(docker)),
		"docker save, zstd": saveFile(t, zstded(t, docker)),
		"OCI archive":       saveFile(t, tarDir(t, oci)),
		"OCI layout":        oci,
	} {
		for _, ref := range []string{"", "other:v2"} {
			s := openStore(t, Options{})
			got, err := s.Import(ctx, from, ImportOptions{Ref: ref})
			if err != nil {
				t.Errorf("%s: %v", kind, err)
				continue
			}
			want := "docker.io/team/app:v1"
			if ref != "" {
				want = "docker.io/library/other:v2"
			}
			if got.Reference != want || got.Config.User.Name != "node" || got.Config.WorkingDir != "/work" {
				t.Errorf("%s: %s %+v", kind, got.Reference, got.Config)
			}
			if d := cmp.Diff(sampleFiles, files(t, got)); d != "" {
				t.Errorf("%s: %s", kind, d)
			}
			again, err := s.Import(ctx, from, ImportOptions{Ref: "again"})
			if err != nil || again.Digest != got.Digest || again.Reference != "docker.io/library/again:latest" {
				t.Errorf("%s: a second import: %s, %v", kind, again.Reference, err)
			}
			oneOf(t, s)
			assertNothingLeft(t, s)
		}
	}
}

func TestImportDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for p, content := range map[string]string{"etc/passwd": passwd, "hello": "world"} {
		if err := os.WriteFile(filepath.Join(dir, p), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := openStore(t, Options{})
	img, err := s.Import(ctx, dir, ImportOptions{Ref: "local/base"})
	if err != nil {
		t.Fatal(err)
	}
	if got := files(t, img); !slices.Equal(got, []string{"/etc/passwd=" + passwd, "/hello=world"}) || img.Reference != "docker.io/local/base:latest" {
		t.Errorf("%s %q", img.Reference, got)
	}
	again, err := s.Import(ctx, dir, ImportOptions{Ref: "local/base"})
	if err != nil || again.Digest != img.Digest {
		t.Errorf("the same directory gives %s, then %s: %v", img.Digest, again.Digest, err)
	}
	if _, err := s.Import(ctx, dir, ImportOptions{}); !errors.Is(err, ErrInvalidReference) || !strings.Contains(err.Error(), "--ref") {
		t.Errorf("without a name: %v", err)
	}
	assertNothingLeft(t, s)
}

func TestImportErrors(t *testing.T) {
	good := saved(t, "a:b", sample(t))
	oci := ociLayout(t, small(t, "x"), nil)
	blobs, err := filepath.Glob(filepath.Join(oci, "blobs/sha256/*"))
	if err != nil || len(blobs) == 0 {
		t.Fatal("no blobs")
	}
	spoilt := ociLayout(t, small(t, "x"), map[string]string{"io.containerd.image.name": "a:b"})
	for _, b := range blobs {
		p := filepath.Join(spoilt, "blobs/sha256", filepath.Base(b))
		raw, err := os.ReadFile(p)
		if err == nil && bytes.HasPrefix(raw, gzipMagic) {
			err = os.WriteFile(p, gzipped(tarOf(t, "f=forged")), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	escape := t.TempDir()
	for p, content := range map[string]string{"oci-layout": "{}", "index.json": `{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:../../../../etc/passwd","size":3}]}`} {
		if err := os.WriteFile(filepath.Join(escape, p), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name, from string
		opts       ImportOptions
		want       error
		text       string
	}{
		{"missing file", "/nowhere/a.tar", ImportOptions{}, fs.ErrNotExist, "/nowhere/a.tar"},
		{"empty file", saveFile(t, nil), ImportOptions{}, ErrArchive, "not an archive"},
		{"garbage", saveFile(t, bytes.Repeat([]byte("garbage "), 500)), ImportOptions{}, ErrArchive, "tar archive"},
		{"other tar", saveFile(t, tarOf(t, "f=x")), ImportOptions{Ref: "a"}, ErrArchive, "docker save"},
		{"cut", saveFile(t, good[:len(good)*2/3]), ImportOptions{}, ErrArchive, ""},
		{"cut gzip", saveFile(t, gzipped(good)[:300]), ImportOptions{}, ErrArchive, ""},
		{"no name", oci, ImportOptions{}, ErrInvalidReference, "--ref"},
		{"spoilt layer", spoilt, ImportOptions{}, ErrArchive, "instead of"},
		{"digest that leads outside", escape, ImportOptions{Ref: "a"}, ErrArchive, "index.json"},
		{"layers missing", saveFile(t, tarOf(t, `manifest.json=[{"Config":"c","RepoTags":["a:b"],"Layers":["l"]}]`, `c={"rootfs":{"diff_ids":["sha256:`+strings.Repeat("a", 64)+`"]}}`)), ImportOptions{}, ErrArchive, "incomplete"},
		{"layers uncounted", saveFile(t, tarOf(t, `manifest.json=[{"Config":"c","Layers":["l"]}]`, `c={}`)), ImportOptions{}, ErrArchive, "lists 0 layers"},
		{"config outside", saveFile(t, tarOf(t, `manifest.json=[{"Config":"/etc/passwd","Layers":[]}]`)), ImportOptions{}, ErrArchive, "incomplete"},
		{"two images", saveFile(t, tarOf(t, `manifest.json=[{},{}]`)), ImportOptions{}, ErrArchive, "holds 2 images"},
		{"other machine", saveFile(t, tarOf(t, `manifest.json=[{"Config":"c","RepoTags":["a:b"]}]`, `c={"os":"linux","architecture":"vax"}`)), ImportOptions{}, ErrArchive, "linux/vax"},
		{"reserved name", saveFile(t, good), ImportOptions{Ref: "node24"}, ErrInvalidReference, "another name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := openStore(t, Options{})
			_, err := s.Import(ctx, tt.from, tt.opts)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v, want %v with %q", err, tt.want, tt.text)
			}
			assertNothingLeft(t, s)
		})
	}
}

func TestImportIsBounded(t *testing.T) {
	zeros := tarOf(t, "f="+strings.Repeat("\x00", 4<<20))
	bomb := saved(t, "a:b", makeImage(t, v1.Config{}, gzipLayer(zeros)))
	for _, from := range []string{saveFile(t, bomb), saveFile(t, gzipped(bomb)), ociLayout(t, makeImage(t, v1.Config{}, gzipLayer(zeros)), nil)} {
		s := openStore(t, Options{Limits: layer.Limits{Bytes: 1 << 20}})
		if _, err := s.Import(ctx, from, ImportOptions{Ref: "a"}); !errors.Is(err, ErrArchive) {
			t.Errorf("error %v", err)
		}
		assertNothingLeft(t, s)
	}
}
