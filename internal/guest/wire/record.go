package wire

// RecordKind says what a record of a command's log is.
type RecordKind uint8

// Kinds of records.
const (
	RecordStdout RecordKind = 1
	RecordStderr RecordKind = 2
	RecordExit   RecordKind = 3 // the last record
)

const (
	// RecordHeaderSize is the length of a record's header: kind u8, length u32.
	RecordHeaderSize = 5
	// MaxRecord bounds a record's payload in bytes.
	MaxRecord = 64 << 10
	// ExitRecordSize is the length of a whole exit record.
	ExitRecordSize = RecordHeaderSize + 12
)

// Record is one entry of a command's log.
type Record struct {
	Kind RecordKind
	Data []byte // of RecordStdout and RecordStderr; aliases the input
	// Of RecordExit: the exit code, and the guest's clock then, in
	// milliseconds since 1970.
	Code       int32
	AtUnixMsec int64
}

// PutRecordHeader writes a record's header into b.
func PutRecordHeader(b []byte, k RecordKind, n int) {
	b[0] = byte(k)
	PutU32(b[1:], uint32(n))
}

// AppendExit appends an exit record.
func AppendExit(b []byte, code int32, atUnixMsec int64) []byte {
	b = append(b, byte(RecordExit), 0, 0, 0, 12)
	b = AppendU32(b, uint32(code))
	return AppendU64(b, uint64(atUnixMsec))
}

// ParseRecord reads the record at the start of b and returns its whole
// length; 0 where b holds only a part of it. It fails with ErrMalformed.
func ParseRecord(b []byte) (Record, int, error) {
	if len(b) < RecordHeaderSize {
		return Record{}, 0, nil
	}
	r := Record{Kind: RecordKind(b[0])}
	n := U32(b[1:])
	switch {
	case r.Kind == RecordStdout || r.Kind == RecordStderr:
		if n > MaxRecord {
			return Record{}, 0, ErrMalformed
		}
	case r.Kind == RecordExit:
		if n != 12 {
			return Record{}, 0, ErrMalformed
		}
	default:
		return Record{}, 0, ErrMalformed
	}
	end := RecordHeaderSize + int(n)
	if len(b) < end {
		return Record{}, 0, nil
	}
	r.Data = b[RecordHeaderSize:end]
	if r.Kind == RecordExit {
		r.Code = int32(U32(r.Data))
		r.AtUnixMsec = int64(U64(r.Data[4:]))
		r.Data = nil
	}
	return r, end, nil
}

// Decoder reads records from a stream that arrives in pieces of any size.
// The zero value is ready. It holds at most one incomplete record.
type Decoder struct {
	rest []byte // the beginning of a record
	done bool
}

// Feed takes the next bytes and calls f for every record that they complete;
// the record's data is valid during the call only. It fails with
// ErrMalformed, for bytes after the exit record too, or with f's error.
func (d *Decoder) Feed(b []byte, f func(Record) error) error {
	for len(d.rest) > 0 && len(b) > 0 {
		n := min(d.missing(), len(b))
		d.rest = append(d.rest, b[:n]...)
		b = b[n:]
		r, size, err := ParseRecord(d.rest)
		if err != nil {
			return err
		}
		if size > 0 {
			err := d.emit(r, f)
			d.rest = d.rest[:0]
			if err != nil {
				return err
			}
		}
	}
	for len(b) > 0 {
		r, size, err := ParseRecord(b)
		if err != nil {
			return err
		}
		if size == 0 {
			if d.done {
				return ErrMalformed
			}
			d.rest = append(d.rest[:0], b...)
			return nil
		}
		b = b[size:]
		if err := d.emit(r, f); err != nil {
			return err
		}
	}
	return nil
}

// missing is how many bytes complete the header, or then the record, in rest.
func (d *Decoder) missing() int {
	if len(d.rest) < RecordHeaderSize {
		return RecordHeaderSize - len(d.rest)
	}
	return RecordHeaderSize + int(U32(d.rest[1:])) - len(d.rest)
}

func (d *Decoder) emit(r Record, f func(Record) error) error {
	if d.done {
		return ErrMalformed
	}
	d.done = r.Kind == RecordExit
	return f(r)
}

// Done tells whether the exit record was seen.
func (d *Decoder) Done() bool { return d.done }

// Partial is how many bytes of an incomplete record are held.
func (d *Decoder) Partial() int { return len(d.rest) }
