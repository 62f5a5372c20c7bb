package image

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/glovebox-dev/glovebox/internal/layer"
)

// maxManifest bounds manifests, indexes and configs.
const maxManifest = 4 << 20

// source is an OCI image wherever it comes from.
type source struct {
	digest string // of the manifest, or of the config where there is none
	config v1.Config
	layers []blob // from the bottom up
}

// blob is one layer archive, compressed or not.
type blob struct {
	// raw and diff are the SHA-256 digests of the bytes that open gives and of
	// the archive when decompressed, in hex. One of them is set, and checked.
	raw, diff string
	size      int64 // of what open gives
	open      func(ctx context.Context) (io.ReadCloser, error)
}

// squash applies all layers of src to one tree and installs it as name.
func (s *Store) squash(ctx context.Context, name string, src source, progress ProgressFunc) (Image, error) {
	t, err := s.newTree()
	if err != nil {
		return Image{}, err
	}
	defer t.Close()
	for i, b := range src.layers {
		detail := fmt.Sprintf("layer %d of %d", i+1, len(src.layers))
		if err := apply(ctx, t, b, detail, progress); err != nil {
			return Image{}, fmt.Errorf("%s: %w", detail, err)
		}
	}
	c, err := fromOCI(src.config, t)
	if err != nil {
		return Image{}, err
	}
	return s.finish(ctx, name, src.digest, t, c, progress)
}

// apply decompresses a blob beside applying it, and checks its digest.
func apply(ctx context.Context, t *layer.Tree, b blob, detail string, progress ProgressFunc) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer f.Close()
	raw := newVerifier(progress.countBytes(f, StageUnpack, detail, b.size), b.raw)
	plain, err := decompress(raw)
	if err != nil {
		return err
	}
	defer plain.Close()
	diff := newVerifier(plain, b.diff)
	ahead := readAhead(diff)
	defer ahead.Close()
	if err := t.Apply(ctx, ahead); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, ahead); err != nil {
		return err
	}
	ahead.Close()
	if err := diff.check(); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, raw); err != nil { // after the compressed stream
		return err
	}
	return raw.check()
}

// verifier hashes what passes if there is something to compare it with.
type verifier struct {
	io.Reader
	hash hash.Hash
	want string
}

func newVerifier(r io.Reader, want string) *verifier {
	v := &verifier{Reader: r, want: want}
	if want != "" {
		v.hash = sha256.New()
		v.Reader = io.TeeReader(r, v.hash)
	}
	return v
}

// check is called at the end of the stream.
func (v *verifier) check() error {
	if v.hash == nil {
		return nil
	}
	if got := hex.EncodeToString(v.hash.Sum(nil)); got != v.want {
		return fmt.Errorf("%w: its content has the digest sha256:%s instead of sha256:%s", ErrArchive, got, v.want)
	}
	return nil
}

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// decompress goes by the content, for media types are not always true. Errors
// of the compressed stream itself, unlike those of r, wrap ErrArchive.
func decompress(r io.Reader) (io.ReadCloser, error) {
	in := &recorder{r: r}
	br := bufio.NewReaderSize(in, 256<<10)
	magic, err := br.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, gzipMagic):
		gz, err := gzip.NewReader(br)
		if err != nil {
			return nil, in.explain("gzip", err)
		}
		return &unpacker{Reader: gz, in: in, format: "gzip", close: gz.Close}, nil
	case bytes.Equal(magic, zstdMagic):
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, in.explain("zstd", err)
		}
		return &unpacker{Reader: z, in: in, format: "zstd", close: func() error { z.Close(); return nil }}, nil
	}
	return io.NopCloser(br), nil
}

// recorder remembers what went wrong below a decompressor.
type recorder struct {
	r   io.Reader
	err error
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

func (r *recorder) explain(format string, err error) error {
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return err
	case r.err != nil:
		return r.err
	}
	return fmt.Errorf("%w: %s: %w", ErrArchive, format, err)
}

type unpacker struct {
	io.Reader
	in     *recorder
	format string
	close  func() error
}

func (u *unpacker) Close() error { return u.close() }

func (u *unpacker) Read(b []byte) (int, error) {
	n, err := u.Reader.Read(b)
	return n, u.in.explain(u.format, err)
}
