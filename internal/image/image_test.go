package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
	"gvisor.dev/gvisor/pkg/erofs"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

var ctx = context.Background()

func openStore(t testing.TB, opts Options) *Store {
	t.Helper()
	return openStoreAt(t, t.TempDir(), opts)
}

func openStoreAt(t testing.TB, dir string, opts Options) *Store {
	t.Helper()
	opts.Logger = slog.New(slog.DiscardHandler)
	s, err := Open(dir, opts)
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

// tarOf makes an archive of headers, with the content that comes after each.
func tarOf(t testing.TB, members ...any) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, m := range members {
		switch m := m.(type) {
		case tar.Header:
			if m.Mode == 0 {
				m.Mode = 0o755
			}
			m.Format = tar.FormatPAX
			if err := w.WriteHeader(&m); err != nil {
				t.Fatal(err)
			}
		case string: // name=content
			name, content, _ := strings.Cut(m, "=")
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
				t.Fatal(err)
			}
			io.WriteString(w, content)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func gzipped(b []byte) []byte {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	w.Write(b)
	w.Close()
	return buf.Bytes()
}

func zstded(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(b, nil)
}

// layerOf is a layer with the digests of its compressed and its plain form.
type layerOf struct {
	v1.Layer
	plain []byte
}

func (l layerOf) DiffID() (v1.Hash, error) {
	h, _, err := v1.SHA256(bytes.NewReader(l.plain))
	return h, err
}

func (l layerOf) Uncompressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(l.plain)), nil
}

func gzipLayer(plain []byte) v1.Layer {
	return layerOf{static.NewLayer(gzipped(plain), types.OCILayer), plain}
}

func makeImage(t testing.TB, c v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1), layers...)
	if err != nil {
		t.Fatal(err)
	}
	f, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	f = f.DeepCopy()
	f.OS, f.Architecture, f.Config = "linux", runtime.GOARCH, c
	if img, err = mutate.ConfigFile(img, f); err != nil {
		t.Fatal(err)
	}
	return img
}

const (
	passwd = "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1001:Node:/home/node:/bin/sh\n"
	group  = "root:x:0:\nnode:x:1001:\ndocker:x:77:other,node\naudio:x:29:node\n"
)

// sample is an image of three layers that need each rule of squashing.
func sample(t testing.TB) v1.Image {
	t.Helper()
	bottom := tarOf(t,
		tar.Header{Name: "etc/", Typeflag: tar.TypeDir}, "etc/passwd="+passwd, "etc/group="+group,
		tar.Header{Name: "opt/", Typeflag: tar.TypeDir}, "opt/old=old", "opt/gone=gone",
		tar.Header{Name: "var/cache/", Typeflag: tar.TypeDir}, "var/cache/1=1", "var/cache/2=2",
		tar.Header{Name: "bin/su", Typeflag: tar.TypeReg, Mode: 0o4755, PAXRecords: map[string]string{"SCHILY.xattr.user.origin": "bottom"}})
	middle := tarOf(t,
		"opt/.wh.gone=", "var/cache/.wh..wh..opq=", "var/cache/3=3",
		tar.Header{Name: "opt/hard", Typeflag: tar.TypeLink, Linkname: "opt/old"})
	top := tarOf(t, "opt/old=new", tar.Header{Name: "sh", Typeflag: tar.TypeSymlink, Linkname: "/bin/su"})
	return makeImage(t, v1.Config{
		User: "node", WorkingDir: "/work", Env: []string{"PATH=/opt/tools/bin:/usr/bin", "EMPTY=", "EQ=a=b"},
	}, gzipLayer(bottom), layerOf{static.NewLayer(zstded(t, middle), types.OCILayerZStd), middle}, gzipLayer(top))
}

// sampleFiles is what must come of it.
var sampleFiles = []string{
	"/bin/su=", "/etc/group=" + group, "/etc/passwd=" + passwd,
	"/opt/hard=old", "/opt/old=new", "/sh->/bin/su", "/var/cache/3=3",
}

// files lists an image's files and links as the sandbox will see them.
func files(t testing.TB, img Image) []string {
	t.Helper()
	if len(img.Layers) != 1 {
		t.Fatalf("%d layers", len(img.Layers))
	}
	f, err := os.Open(img.Layers[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	e, err := erofs.OpenImage(f)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var out []string
	var walk func(nid uint64, p string) error
	walk = func(nid uint64, p string) error {
		in, err := e.Inode(nid)
		switch {
		case err != nil:
			return err
		case in.IsDir():
			return in.IterDirents(func(name string, _ uint8, kid uint64) error {
				if name == "." || name == ".." {
					return nil
				}
				return walk(kid, path.Join(p, name))
			})
		case in.IsSymlink():
			target, err := in.Readlink()
			out = append(out, p+"->"+target)
			return err
		}
		r, err := in.DataRanges()
		out = append(out, p+"="+string(r[0].Bytes))
		return err
	}
	if err := walk(e.RootNid(), "/"); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// serveRegistry runs a registry on loopback and returns its host and port;
// guard may answer a request itself by returning true.
func serveRegistry(t testing.TB, guard func(http.ResponseWriter, *http.Request) bool) string {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // not the user's credentials
	inner := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guard == nil || !guard(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

func push(t testing.TB, ref string, img v1.Image) {
	t.Helper()
	r, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r, img); err != nil {
		t.Fatal(err)
	}
}

// assertNothingLeft checks that no half-made file is anywhere in the store.
func assertNothingLeft(t testing.TB, s *Store) {
	t.Helper()
	recs, err := s.records()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, r := range recs {
		want[s.recordPath(r.Digest)] = true
		for _, l := range r.Layers {
			want[l.Path] = true
		}
	}
	filepath.WalkDir(s.dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !want[p] {
			t.Errorf("left behind: %s", p)
		}
		return err
	})
}

func small(t testing.TB, content string) v1.Image {
	t.Helper()
	return makeImage(t, v1.Config{}, gzipLayer(tarOf(t, "f="+content)))
}

func saveFile(t testing.TB, b []byte) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(p, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func oneOf(t testing.TB, s *Store) Image {
	t.Helper()
	all, err := s.List()
	if err != nil || len(all) != 1 {
		t.Fatalf("%d images, %v", len(all), err)
	}
	return all[0]
}
