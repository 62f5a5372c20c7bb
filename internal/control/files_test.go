package control

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"

	"github.com/glovebox-dev/glovebox/api"
)

func gz(t *testing.T, parts ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, p := range parts {
		w := gzip.NewWriter(&b)
		if _, err := w.Write(p); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestWriteFiles(t *testing.T) {
	long := strings.Repeat("哈", 60) + "/" + strings.Repeat("d", 150) + "/x"
	one, two := makeTar(t, "a", "1", long, "2", "é.txt", "3"), makeTar(t, "b", strings.Repeat("x", 100_000))
	for _, c := range []struct {
		name, cwd string
		body      []byte
		want      map[string]string
	}{
		{"one", "/", gz(t, one), map[string]string{"/a": "1", "/" + long: "2", "/é.txt": "3"}},
		{"relative cwd", "sub", gz(t, makeTar(t, "a", "1")), map[string]string{"/vercel/sandbox/sub/a": "1"}},
		{"no cwd", "", gz(t, makeTar(t, "a", "1")), map[string]string{"/vercel/sandbox/a": "1"}},
		{"one tar in two members", "/", gz(t, one[:700], one[700:]), map[string]string{"/a": "1", "/" + long: "2", "/é.txt": "3"}},
		{"a tar in each of two members", "/", gz(t, makeTar(t, "a", "1"), two), map[string]string{"/a": "1", "/b": strings.Repeat("x", 100_000)}},
		{"a tar without its end marks", "/", gz(t, two[:len(two)-1024]), map[string]string{"/b": strings.Repeat("x", 100_000)}},
		{"no files", "/", gz(t, makeTar(t)), map[string]string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			id := r.create(t, api.CreateSandboxRequest{}).Session.ID
			err := r.WriteFiles(t.Context(), id, c.cwd, bytes.NewReader(c.body))
			if len(c.want) == 0 {
				wantCode(t, err, api.CodeBadRequest, "no tar")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, r.node.last().files); d != "" {
				t.Error(d)
			}
		})
	}
}

type brokenReader struct{ r io.Reader }

func (b brokenReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if errors.Is(err, io.EOF) {
		err = errors.New("connection reset by peer")
	}
	return n, err
}

func TestWriteFilesBroken(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	plain := makeTar(t, "a", "1", "b", strings.Repeat("long ", 50_000))
	good := gz(t, plain)
	crc := bytes.Clone(good)
	crc[len(crc)-6] ^= 1
	badTar := bytes.Clone(plain)
	badTar[150] = 'x' // in the checksum
	for name, body := range map[string]io.Reader{
		"empty":               strings.NewReader(""),
		"not gzip":            strings.NewReader("hello, this is no gzip"),
		"plain tar":           bytes.NewReader(plain),
		"cut in a file":       bytes.NewReader(good[:len(good)/2]),
		"cut in the trailer":  bytes.NewReader(good[:len(good)-3]),
		"wrong CRC":           bytes.NewReader(crc),
		"bad tar":             bytes.NewReader(gz(t, badTar)),
		"tar cut, gzip whole": bytes.NewReader(gz(t, plain[:2000])),
		"rubbish behind":      bytes.NewReader(append(bytes.Clone(good), "rubbish"...)),
		"client gone":         brokenReader{bytes.NewReader(good[:len(good)/2])},
		"endless padding":     bytes.NewReader(gz(t, plain, make([]byte, 10<<20))),
		"not tar":             bytes.NewReader(gz(t, bytes.Repeat([]byte("x"), 2000))),
	} {
		t.Run(name, func(t *testing.T) {
			wantCode(t, r.WriteFiles(t.Context(), id, "/", body), api.CodeBadRequest, "body")
			if n := len(r.node.last().files); n != 0 {
				t.Errorf("%d files were written", n)
			}
		})
	}
	wantCode(t, r.WriteFiles(t.Context(), id, "/", bytes.NewReader(gz(t, makeTar(t, "tmp", "x")))), api.CodeBadRequest, "directory")
}

func TestReadFileAndMkdir(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	if err := r.Mkdir(ctx, id, "d", ""); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteFiles(ctx, id, "d", bytes.NewReader(gz(t, makeTar(t, "f", "text")))); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"d/f", ""}, {"f", "d"}, {"f", "/vercel/sandbox/d"}, {"/vercel/sandbox/d/f", "/ignored"}, {"./d/f", "."}} {
		f, size, err := r.ReadFile(ctx, id, c[0], c[1])
		if err != nil {
			t.Fatal(c, err)
		}
		b, err := io.ReadAll(f)
		if string(b) != "text" || size != 4 || err != nil || f.Close() != nil {
			t.Errorf("%v: %q, %d, %v", c, b, size, err)
		}
	}
	_, _, err := r.ReadFile(ctx, id, "none", "")
	wantCode(t, err, api.CodeNotFound, "none")
	if e, _ := errors.AsType[*api.Error](err); !e.Missing {
		t.Error("not marked as a missing file")
	}
	_, _, err = r.ReadFile(ctx, id, "d", "")
	wantCode(t, err, api.CodeBadRequest, "regular")
	for _, p := range []string{"", "a\x00", strings.Repeat("x", 5000)} {
		_, _, err = r.ReadFile(ctx, id, p, "")
		wantCode(t, err, api.CodeBadRequest, "path")
		wantCode(t, r.Mkdir(ctx, id, p, ""), api.CodeBadRequest, "path")
	}
	wantCode(t, r.Mkdir(ctx, id, "d", ""), api.CodeBadRequest, "exists")
	wantCode(t, r.Mkdir(ctx, id, "x/y", ""), api.CodeBadRequest, "parent")
}
