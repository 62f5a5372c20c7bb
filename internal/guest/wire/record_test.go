package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func output(b []byte, k RecordKind, s string) []byte {
	var h [RecordHeaderSize]byte
	PutRecordHeader(h[:], k, len(s))
	return append(append(b, h[:]...), s...)
}

// sample is a log of three records.
func sample() []byte {
	b := output(nil, RecordStdout, "out")
	b = output(b, RecordStderr, strings.Repeat("e", 1000))
	return AppendExit(b, 137, 1_700_000_000_123)
}

func collect(d *Decoder, b []byte, size int) (string, error) {
	var s strings.Builder
	for len(b) > 0 {
		n := min(size, len(b))
		err := d.Feed(b[:n], func(r Record) error {
			fmt.Fprintf(&s, "%d %q %d %d\n", r.Kind, r.Data, r.Code, r.AtUnixMsec)
			return nil
		})
		if err != nil {
			return s.String(), err
		}
		b = b[n:]
	}
	return s.String(), nil
}

func TestDecoder(t *testing.T) {
	b := sample()
	want := fmt.Sprintf("1 \"out\" 0 0\n2 %q 0 0\n3 \"\" 137 1700000000123\n", strings.Repeat("e", 1000))
	for size := 1; size <= len(b); size++ {
		var d Decoder
		got, err := collect(&d, b, size)
		if err != nil || got != want || !d.Done() || d.Partial() != 0 {
			t.Fatalf("in pieces of %d: %v, %s", size, err, got)
		}
	}
	var d Decoder
	if _, err := collect(&d, b[:len(b)-3], 100); err != nil || d.Done() || d.Partial() != ExitRecordSize-3 {
		t.Errorf("cut: %v, %d held", err, d.Partial())
	}
}

func TestDecoderRefuses(t *testing.T) {
	long := output(nil, RecordStdout, "")
	PutU32(long[1:], MaxRecord+1)
	short := AppendExit(nil, 0, 0)
	PutU32(short[1:], 11)
	for name, b := range map[string][]byte{
		"unknown kind":            output(nil, 9, "x"),
		"long record":             long,
		"exit of another size":    short,
		"bytes after the exit":    append(sample(), 1),
		"a record after the exit": output(sample(), RecordStdout, "x"),
	} {
		for _, size := range []int{1, 7, len(b)} {
			var d Decoder
			if _, err := collect(&d, b, size); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s in pieces of %d: %v", name, size, err)
			}
		}
	}
	stop := errors.New("stop")
	var d Decoder
	if err := d.Feed(sample(), func(Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the caller's error: %v", err)
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add(sample(), 3)
	f.Add(output(nil, RecordStderr, "x"), 1)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if size < 1 {
			size = 1
		}
		var whole, pieces Decoder
		a, errA := collect(&whole, b, len(b)+1)
		c, errB := collect(&pieces, b, size)
		if a != c || (errA == nil) != (errB == nil) || errA == nil && whole.Partial() != pieces.Partial() {
			t.Errorf("whole %q %v, in pieces of %d %q %v", a, errA, size, c, errB)
		}
		if whole.Partial() > RecordHeaderSize+MaxRecord {
			t.Errorf("holds %d bytes", whole.Partial())
		}
	})
}

func BenchmarkDecoder(b *testing.B) {
	log := bytes.Repeat(output(nil, RecordStdout, strings.Repeat("x", 4096)), 256)
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		var d Decoder
		_ = d.Feed(log, func(Record) error { return nil })
	}
}
