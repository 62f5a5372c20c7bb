package main

import (
	"syscall"
	"unsafe"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

const (
	ringMin = 4 << 10
	ringMax = wire.Window
	// ringReserve is kept free so that the exit record always fits.
	ringReserve = wire.ExitRecordSize
)

// ring holds the part of a command's log that the host has not stored:
// the bytes at positions [base, head), position p at buf[p mod len(buf)].
// The size of buf is a power of two times ringMin.
type ring struct {
	buf        []byte
	base, head int64
}

func (r *ring) used() int { return int(r.head - r.base) }

// room is how many bytes of a record's payload fit now, and grow is tried
// before that answer is less than want.
func (r *ring) room(want int) int {
	for {
		free := len(r.buf) - r.used() - ringReserve - wire.RecordHeaderSize
		if free >= want || len(r.buf) >= ringMax {
			return max(free, 0)
		}
		r.grow()
	}
}

func (r *ring) grow() {
	old := r.buf
	r.buf = getBuf(max(ringMin, min(4*len(old), ringMax)))
	if r.used() > 0 {
		for p := r.base; p < r.head; {
			at := int(p) & (len(old) - 1)
			n := min(len(old)-at, int(r.head-p))
			r.copyIn(p, old[at:at+n])
			p += int64(n)
		}
	}
	putBuf(old)
}

// copyIn copies b to position p on; it must fit.
func (r *ring) copyIn(p int64, b []byte) {
	n := copy(r.buf[int(p)&(len(r.buf)-1):], b)
	copy(r.buf, b[n:])
}

// slices are the up to two pieces of buf from position p on for n bytes.
func (r *ring) slices(p int64, n int) (a, b []byte) {
	at := int(p) & (len(r.buf) - 1)
	a = r.buf[at:min(at+n, len(r.buf))]
	return a, r.buf[:n-len(a)]
}

// append adds bytes that are known to fit.
func (r *ring) append(b []byte) {
	r.copyIn(r.head, b)
	r.head += int64(len(b))
}

// readFrom reads at most n bytes from fd into a new record.
func (r *ring) readFrom(fd int, kind wire.RecordKind, n int) (int, error) {
	a, b := r.slices(r.head+wire.RecordHeaderSize, n)
	var got int
	var err error
	if len(b) == 0 {
		got, err = syscall.Read(fd, a)
	} else {
		got, err = readv2(fd, a, b)
	}
	if got > 0 {
		var h [wire.RecordHeaderSize]byte
		wire.PutRecordHeader(h[:], kind, got)
		r.append(h[:])
		r.head += int64(got)
	}
	return got, err
}

func readv2(fd int, a, b []byte) (int, error) {
	iov := [2]syscall.Iovec{{Base: &a[0], Len: uint64(len(a))}, {Base: &b[0], Len: uint64(len(b))}}
	n, _, e := syscall.Syscall(syscall.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&iov[0])), 2)
	if e != 0 {
		return -1, e
	}
	return int(n), nil
}

// ack forgets what is before position p; false: p is not within the ring.
func (r *ring) ack(p int64) bool {
	if p < r.base || p > r.head {
		return false
	}
	r.base = p
	return true
}

// release gives the buffer back while the ring is empty.
func (r *ring) release() {
	if r.used() == 0 && r.buf != nil {
		putBuf(r.buf)
		r.buf = nil
	}
}

// Buffers of rings are used again: most commands print little and are many.
var (
	freeBufs [5][][]byte // by size: ringMin × 4^i
	keepBufs = [5]int{32, 8, 4, 2, 1}
)

func bufClass(n int) int {
	c := 0
	for s := ringMin; s < n; s *= 4 {
		c++
	}
	return c
}

func getBuf(n int) []byte {
	c := bufClass(n)
	if l := len(freeBufs[c]); l > 0 {
		b := freeBufs[c][l-1]
		freeBufs[c] = freeBufs[c][:l-1]
		return b
	}
	return make([]byte, n)
}

func putBuf(b []byte) {
	if b == nil {
		return
	}
	if c := bufClass(len(b)); len(freeBufs[c]) < keepBufs[c] {
		freeBufs[c] = append(freeBufs[c], b)
	}
}
