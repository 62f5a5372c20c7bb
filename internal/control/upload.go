package control

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// upload is a gzip-compressed tar that a client sends, as one clean tar: it
// is parsed here, so that what a guest gets holds no surprises, and archives
// that follow one another (as gzip members do) become one.
type upload struct {
	r    *io.PipeReader
	done chan struct{}

	mu  sync.Mutex // guards err
	err error      // what is wrong with the client's stream
}

// newUpload reads src in the background until close.
func newUpload(src io.Reader) *upload {
	r, w := io.Pipe()
	u := &upload{r: r, done: make(chan struct{})}
	go func() {
		defer close(u.done)
		err := repack(w, src)
		if err != nil && !errors.Is(err, io.ErrClosedPipe) {
			u.mu.Lock()
			u.err = err
			u.mu.Unlock()
		}
		w.CloseWithError(err) //nolint:errcheck // never fails
	}()
	return u
}

func (u *upload) Read(p []byte) (int, error) { return u.r.Read(p) }

// verify tells, at the end of the tar, whether all of the client's stream was
// read and is sound.
func (u *upload) verify() error {
	if _, err := io.Copy(io.Discard, u.r); err != nil {
		return err
	}
	<-u.done
	return u.broken()
}

// broken is what is wrong with the client's stream, as far as it was read.
func (u *upload) broken() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// close ends the background work. The client's stream is not read any more
// once it returns.
func (u *upload) close() {
	u.r.Close() //nolint:errcheck // never fails
	<-u.done
}

const (
	tarBlock = 512
	// maxPadding bounds the zeros between and after archives, so that a small
	// body cannot unpack to endless nothing.
	maxPadding = 1 << 20
)

// repack writes all archives of a gzip stream as one tar.
func repack(w io.Writer, src io.Reader) error {
	gz, err := gzip.NewReader(src)
	if err != nil {
		return fmt.Errorf("it is not gzip: %w", noEOF(err))
	}
	defer gz.Close()
	in := bufio.NewReaderSize(gz, 64<<10)
	out := tar.NewWriter(w)
	for first := true; ; first = false {
		more, err := skipZeros(in)
		if err != nil {
			return fmt.Errorf("its gzip is damaged: %w", noEOF(err))
		}
		if !more {
			if first {
				return errors.New("it holds no tar")
			}
			return out.Close()
		}
		if err := copyArchive(out, in); err != nil {
			return err
		}
	}
}

// skipZeros moves to the next archive and tells whether there is one.
func skipZeros(in *bufio.Reader) (bool, error) {
	var zero [tarBlock]byte
	for skipped := 0; skipped <= maxPadding; skipped += tarBlock {
		b, err := in.Peek(tarBlock)
		if !bytes.Equal(b, zero[:len(b)]) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		in.Discard(len(b)) //nolint:errcheck // it was peeked
	}
	return false, fmt.Errorf("more than %d bytes of padding", maxPadding)
}

func copyArchive(out *tar.Writer, in io.Reader) error {
	for archive := tar.NewReader(in); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("its tar is broken: %w", err)
		}
		h.Format = tar.FormatUnknown // whatever suits its content
		if err := out.WriteHeader(h); err != nil {
			return fmt.Errorf("its tar entry %.100q: %w", h.Name, err)
		}
		if _, err := io.Copy(out, archive); err != nil {
			return fmt.Errorf("its tar entry %.100q: %w", h.Name, noEOF(err))
		}
	}
}

// noEOF keeps an early end from being taken for a good one.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
