package layer

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

const (
	spoolBuffer = 1 << 20
	// holeSize is the run of zeros that is worth a hole in a file.
	holeSize = 64 << 10
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	zeros      [holeSize]byte
)

// spool is an unlinked file to which contents are appended. Its path is gone
// before the first byte is written, so that nothing is left after a crash.
type spool struct {
	f    *os.File
	off  int64  // length, pending bytes included
	pend []byte // not yet in the file
	buf  []byte
	room func() error // see Options.Room
}

func newSpool(dir string, room func() error) (*spool, error) {
	f, err := os.CreateTemp(dir, ".spool-*")
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, fmt.Errorf("spool: %w", err)
	}
	return &spool{f: f, room: room}, nil
}

func (s *spool) close() error { return s.f.Close() }

// add appends exactly size bytes of r.
func (s *spool) add(r io.Reader, size int64) (off int64, sum uint32, err error) {
	if s.buf == nil {
		s.buf = make([]byte, holeSize)
		s.pend = make([]byte, 0, spoolBuffer)
	}
	off = s.off
	for left := size; left > 0; {
		b := s.buf[:min(left, int64(len(s.buf)))]
		if _, err := io.ReadFull(r, b); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("%w: it ends %d bytes early: %w", ErrArchive, left, io.ErrUnexpectedEOF)
			}
			return 0, 0, err
		}
		sum = crc32.Update(sum, castagnoli, b)
		if err := s.append(b); err != nil {
			return 0, 0, err
		}
		left -= int64(len(b))
	}
	return off, sum, nil
}

func (s *spool) append(b []byte) error {
	if len(b) == holeSize && bytes.Equal(b, zeros[:]) {
		if err := s.flush(); err != nil {
			return err
		}
		s.off += holeSize
		return nil
	}
	if len(s.pend)+len(b) > cap(s.pend) {
		if err := s.flush(); err != nil {
			return err
		}
	}
	s.pend = append(s.pend, b...)
	s.off += int64(len(b))
	return nil
}

func (s *spool) flush() error {
	if len(s.pend) == 0 {
		return nil
	}
	if s.room != nil {
		if err := s.room(); err != nil {
			return fmt.Errorf("spool: %w", err)
		}
	}
	_, err := s.f.WriteAt(s.pend, s.off-int64(len(s.pend)))
	s.pend = s.pend[:0]
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	return nil
}

// section reads size bytes at off. Bytes beyond the end of the file are a
// hole that was never written out.
func (s *spool) section(off, size int64) (io.Reader, error) {
	if err := s.flush(); err != nil {
		return nil, err
	}
	return io.LimitReader(io.MultiReader(io.NewSectionReader(s.f, off, size), zeroReader{}), size), nil
}

type zeroReader struct{}

func (zeroReader) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
