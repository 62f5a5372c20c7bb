package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// fileSet is an archive or a directory that holds an image. Names that are
// not in it give errors that wrap fs.ErrNotExist.
type fileSet interface {
	open(name string) (io.ReadCloser, error)
	size(name string) (int64, error)
}

// dirFiles is a directory that no name, and no link in it, leads out of.
type dirFiles struct{ root *os.Root }

func (d dirFiles) open(name string) (io.ReadCloser, error) { return d.root.Open(name) }

func (d dirFiles) size(name string) (int64, error) {
	info, err := d.root.Stat(name)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%w: %s is not a file", ErrArchive, name)
	}
	return info.Size(), nil
}

// tarFiles is a tar file with an index of where its members are.
type tarFiles struct {
	f     *os.File
	names map[string]section
}

type section struct{ off, size int64 }

// maxMembers bounds the index; an image has a few files for each layer.
const maxMembers = 100_000

// openTar indexes a tar file. A compressed one is decompressed to the store's
// own disk first.
func (s *Store) openTar(ctx context.Context, from string, progress ProgressFunc) (*tarFiles, error) {
	f, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err != nil {
		f.Close()
		return nil, fmt.Errorf("%w: it is not an archive: %w", ErrArchive, err)
	}
	if strings.HasPrefix(string(magic), string(gzipMagic)) || string(magic) == string(zstdMagic) {
		plain, err := s.inflate(ctx, f, progress)
		f.Close()
		if err != nil {
			return nil, err
		}
		f = plain
	}
	t, err := indexTar(ctx, f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return t, nil
}

// inflate decompresses f to an unlinked file.
func (s *Store) inflate(ctx context.Context, f *os.File, progress ProgressFunc) (*os.File, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	plain, err := decompress(progress.countBytes(f, StageUnpack, "decompressing", 0))
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	out, err := os.CreateTemp(s.scratch.Path(), "")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(out.Name()); err != nil {
		out.Close()
		return nil, err
	}
	max := s.maxBytes()
	n, err := io.Copy(out, io.LimitReader(ctxReader{ctx, roomReader{s.opts.Room, plain}}, max+1))
	if err == nil && n > max {
		err = fmt.Errorf("%w: more than %d bytes when decompressed", ErrArchive, max)
	}
	if err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

// roomReader asks for room before what it reads is written.
type roomReader struct {
	room func() error // may be nil
	r    io.Reader
}

func (r roomReader) Read(b []byte) (int, error) {
	if r.room != nil {
		if err := r.room(); err != nil {
			return 0, err
		}
	}
	return r.r.Read(b)
}

type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c ctxReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// indexTar notes where the content of each regular member lies. Links between
// members, which old archives use for equal layers, are followed.
func indexTar(ctx context.Context, f *os.File) (*tarFiles, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	t := &tarFiles{f: f, names: map[string]section{}}
	links := map[string]string{}
	tr := tar.NewReader(f) // seeks over contents
	for n := 0; ; n++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && n >= maxMembers {
			err = fmt.Errorf("more than %d members", maxMembers)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: it is not a tar archive that can be read: %w", ErrArchive, err)
		}
		name := path.Clean(h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			off, err := f.Seek(0, io.SeekCurrent)
			if err != nil {
				return nil, err
			}
			t.names[name] = section{off, h.Size}
		case tar.TypeSymlink:
			links[name] = path.Join(path.Dir(name), h.Linkname)
		case tar.TypeLink:
			links[name] = path.Clean(h.Linkname)
		}
	}
	for name, target := range links {
		if s, ok := t.names[target]; ok {
			t.names[name] = s
		}
	}
	return t, nil
}

func (t *tarFiles) Close() error { return t.f.Close() }

func (t *tarFiles) open(name string) (io.ReadCloser, error) {
	s, ok := t.names[path.Clean(name)]
	if !ok {
		return nil, fmt.Errorf("member %q: %w", name, fs.ErrNotExist)
	}
	return io.NopCloser(io.NewSectionReader(t.f, s.off, s.size)), nil
}

func (t *tarFiles) size(name string) (int64, error) {
	s, ok := t.names[path.Clean(name)]
	if !ok {
		return 0, fmt.Errorf("member %q: %w", name, fs.ErrNotExist)
	}
	return s.size, nil
}

func readSmall(files fileSet, name string) ([]byte, error) {
	f, err := files.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err == nil && len(b) > maxManifest {
		err = fmt.Errorf("%w: %s has more than %d bytes", ErrArchive, name, maxManifest)
	}
	return b, err
}

func readJSON(files fileSet, name string, v any) error {
	b, err := readSmall(files, name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrArchive, name, err)
	}
	return nil
}

func blobPath(hex string) string { return "blobs/sha256/" + hex }

// sha256Hex refuses digests that are malformed or of another kind.
func sha256Hex(h v1.Hash) (string, error) {
	if !isDigest(h.String()) {
		return "", fmt.Errorf("%w: digest %q is not a SHA-256", ErrArchive, h)
	}
	return h.Hex, nil
}

// readBlob reads a small blob and checks its digest.
func readBlob(files fileSet, d v1.Descriptor) ([]byte, error) {
	hex, err := sha256Hex(d.Digest)
	if err != nil {
		return nil, err
	}
	b, err := readSmall(files, blobPath(hex))
	if err != nil {
		return nil, missing(err)
	}
	if got := digestOf(b); got != d.Digest.String() {
		return nil, fmt.Errorf("%w: %s has the digest %s", ErrArchive, blobPath(hex), got)
	}
	return b, nil
}

func readBlobJSON(files fileSet, d v1.Descriptor, v any) error {
	b, err := readBlob(files, d)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: blob %s: %w", ErrArchive, d.Digest, err)
	}
	return nil
}

// missing says of a part that the archive refers to and lacks that the
// archive is broken.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it is incomplete: %s", ErrArchive, err) //nolint:errorlint // ErrNotExist would mean another format
	}
	return err
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return digestPrefix + hex.EncodeToString(sum[:])
}
