package layer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// emitter encodes metadata. The first error sticks.
type emitter struct {
	w   io.Writer
	buf []byte
	pos int64
	err error
}

func (e *emitter) u16(v uint16) { e.grow(2); e.buf = binary.LittleEndian.AppendUint16(e.buf, v) }
func (e *emitter) u32(v uint32) { e.grow(4); e.buf = binary.LittleEndian.AppendUint32(e.buf, v) }
func (e *emitter) u64(v uint64) { e.grow(8); e.buf = binary.LittleEndian.AppendUint64(e.buf, v) }

func (e *emitter) bytes(b []byte) {
	e.grow(len(b))
	e.buf = append(e.buf, b...)
}

// pad emits zeros up to position to.
func (e *emitter) pad(to int64) {
	for e.pos < to {
		e.bytes(zeros[:min(to-e.pos, holeSize)])
	}
}

func (e *emitter) grow(n int) {
	if len(e.buf) > holeSize {
		e.flush()
	}
	e.pos += int64(n)
}

func (e *emitter) flush() {
	if e.err == nil {
		_, e.err = e.w.Write(e.buf)
	}
	e.buf = e.buf[:0]
}

// output writes a file from the start, leaves holes where there is nothing
// but zeros, and hashes beside it: the hash is what takes longest.
type output struct {
	f       *os.File
	off     int64 // of buf in the file
	buf     []byte
	hash    hash.Hash
	filled  chan piece
	free    chan []byte
	hashed  chan struct{}
	stopped bool
	sums    bool  // what follows is hashed by its checksum, see Info.Digest
	flushed int64 // what the disk was told to write
	holes   []Extent
	room    func() error // see Options.Room
}

// piece is a part of the file that is to be hashed.
type piece struct {
	b    []byte
	off  int64
	sums bool
}

const (
	outputBuffers = 4
	pieceSize     = 4 * holeSize
	flushSize     = 8 << 20
	// sumsPrefix begins what is hashed where checksums are: a superblock does
	// not begin like that.
	sumsPrefix = "glovebox layer 1\x00"
)

func newOutput(f *os.File, room func() error) *output {
	o := &output{
		f:      f,
		room:   room,
		hash:   sha256.New(),
		filled: make(chan piece, outputBuffers),
		free:   make(chan []byte, outputBuffers),
		hashed: make(chan struct{}),
	}
	for range outputBuffers {
		o.free <- make([]byte, 0, pieceSize)
	}
	o.buf = <-o.free
	go func() {
		defer close(o.hashed)
		for p := range o.filled {
			p.hash(o.hash)
			o.free <- p.b[:0]
		}
	}()
	return o
}

func (p piece) hash(h hash.Hash) {
	if !p.sums {
		h.Write(p.b)
		return
	}
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], uint64(p.off))
	binary.LittleEndian.PutUint32(b[8:], uint32(len(p.b)))
	binary.LittleEndian.PutUint32(b[12:], crc32.Checksum(p.b, castagnoli))
	h.Write(b[:])
}

// stop ends the hashing goroutine; it may be called again.
func (o *output) stop() {
	if !o.stopped {
		o.stopped = true
		close(o.filled)
		<-o.hashed
	}
}

func (o *output) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		k := min(len(b), cap(o.buf)-len(o.buf))
		o.buf = append(o.buf, b[:k]...)
		b = b[k:]
		if err := o.drain(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// copy appends exactly size bytes of r and zeros up to a whole block.
func (o *output) copy(ctx context.Context, r io.Reader, size int64) error {
	if err := o.fill(ctx, r, size); err != nil {
		return err
	}
	_, err := o.Write(zeros[:-size&(blockSize-1)])
	return err
}

// fill appends exactly size bytes of r.
func (o *output) fill(ctx context.Context, r io.Reader, size int64) error {
	for size > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		k := int(min(size, int64(cap(o.buf)-len(o.buf))))
		b := o.buf[len(o.buf) : len(o.buf)+k]
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		o.buf = o.buf[:len(o.buf)+k]
		size -= int64(k)
		if err := o.drain(); err != nil {
			return err
		}
	}
	return nil
}

// zeros appends n zeros, as a hole where that is worth it.
func (o *output) zeros(n int64) error {
	if n >= minHole && o.sums {
		if err := o.send(); err != nil {
			return err
		}
		o.holes = append(o.holes, Extent{o.off, n})
		o.off += n
		return nil
	}
	for n > 0 {
		k := min(n, holeSize)
		if _, err := o.Write(zeros[:k]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// useSums has the rest hashed by checksums.
func (o *output) useSums() error {
	err := o.send()
	o.sums = true
	return err
}

// drain sends a full buffer to the file and to the hash.
func (o *output) drain() error {
	if len(o.buf) < cap(o.buf) {
		return nil
	}
	return o.send()
}

func (o *output) send() error {
	if len(o.buf) == 0 {
		return nil
	}
	if o.room != nil {
		if err := o.room(); err != nil {
			return err
		}
	}
	for i := 0; i < len(o.buf); i += holeSize {
		b := o.buf[i:min(i+holeSize, len(o.buf))]
		if bytes.Equal(b, zeros[:len(b)]) {
			continue
		}
		if _, err := o.f.WriteAt(b, o.off+int64(i)); err != nil {
			return err
		}
	}
	o.filled <- piece{o.buf, o.off, o.sums}
	o.off += int64(len(o.buf))
	if o.sums && o.off-o.flushed >= flushSize {
		// Only a hint: the disk writes while we do other things, so that the
		// sync that is to come takes less.
		_ = unix.SyncFileRange(int(o.f.Fd()), o.flushed, o.off-o.flushed, unix.SYNC_FILE_RANGE_WRITE)
		o.flushed = o.off
	}
	o.buf = <-o.free
	return nil
}

// finish writes out what is left, sets the length and returns the digest.
func (o *output) finish() (string, error) {
	if err := o.send(); err != nil {
		return "", err
	}
	if err := o.f.Truncate(o.off); err != nil {
		return "", err
	}
	o.stop()
	return "sha256:" + hex.EncodeToString(o.hash.Sum(nil)), nil
}
