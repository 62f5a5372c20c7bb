package wire

// U32 reads a big-endian number from the first 4 bytes of b.
func U32(b []byte) uint32 {
	_ = b[3]
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// U64 reads a big-endian number from the first 8 bytes of b.
func U64(b []byte) uint64 {
	return uint64(U32(b))<<32 | uint64(U32(b[4:]))
}

// PutU32 writes a big-endian number into the first 4 bytes of b.
func PutU32(b []byte, v uint32) {
	_ = b[3]
	b[0], b[1], b[2], b[3] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
}

// PutU64 writes a big-endian number into the first 8 bytes of b.
func PutU64(b []byte, v uint64) {
	PutU32(b, uint32(v>>32))
	PutU32(b[4:], uint32(v))
}

// AppendU32 appends a big-endian number.
func AppendU32(b []byte, v uint32) []byte {
	return append(b, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

// AppendU64 appends a big-endian number.
func AppendU64(b []byte, v uint64) []byte {
	return AppendU32(AppendU32(b, uint32(v>>32)), uint32(v))
}

func appendString(b []byte, s string) []byte {
	return append(AppendU32(b, uint32(len(s))), s...)
}

func appendStrings(b []byte, l []string) []byte {
	b = AppendU32(b, uint32(len(l)))
	for _, s := range l {
		b = appendString(b, s)
	}
	return b
}

// decoder reads a message's fields in order. After the first field that does
// not fit, bad is set and every field reads as zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if d.bad || n < 0 || n > len(d.b) {
		d.bad = true
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) u8() uint8 {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if p := d.take(2); p != nil {
		return uint16(p[0])<<8 | uint16(p[1])
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if p := d.take(4); p != nil {
		return U32(p)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if p := d.take(8); p != nil {
		return U64(p)
	}
	return 0
}

func (d *decoder) bytes() []byte {
	n := d.u32()
	if n > MaxRequest {
		d.bad = true
	}
	return d.take(int(n))
}

func (d *decoder) string() string { return string(d.bytes()) }

// count reads the length of a list whose elements take at least size bytes
// each, so that a short message cannot ask for a long list.
func (d *decoder) count(size int) int {
	n := d.u32()
	if d.bad || uint64(n)*uint64(size) > uint64(len(d.b)) {
		d.bad = true
		return 0
	}
	return int(n)
}

func (d *decoder) strings() []string {
	n := d.count(4)
	if n == 0 {
		return nil
	}
	l := make([]string, 0, n)
	for range n {
		l = append(l, d.string())
	}
	return l
}

// end is the message's verdict: every field fitted, and nothing is left over.
func (d *decoder) end() error {
	if d.bad || len(d.b) != 0 {
		return ErrMalformed
	}
	return nil
}
