package control

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func decodeAll(pieces ...[]byte) string {
	var d textDecoder
	var out strings.Builder
	for _, p := range pieces {
		out.WriteString(d.decode(p))
	}
	out.WriteString(d.flush())
	return out.String()
}

func TestTextDecoder(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"a\x00b\r\n\ufeff", "a\x00b\r\n\ufeff"},
		{"\xff\xfe\x80ok", "\ufffd\ufffd\ufffdok"},
		{"\xe2\x98", "\ufffd"},       // one for a cut sequence
		{"\xe2\x98A", "\ufffdA"},     // and for one that breaks off
		{"\xf0\x9f\x98", "\ufffd"},   //
		{"\xc0\xaf", "\ufffd\ufffd"}, // overlong
		{"\xe0\x80\xaf", "\ufffd\ufffd\ufffd"},
		{"\xed\xa0\x80", "\ufffd\ufffd\ufffd"}, // surrogate
		{"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},
		{"\xf0\x80\x80\x41", "\ufffd\ufffd\ufffdA"}, // from Unicode's table of best practice
		{"\xf1\x80\x80\x41", "\ufffdA"},
		{"caf\u00e9\u2615 \u4f60\u597d", "caf\u00e9\u2615 \u4f60\u597d"},
	} {
		if got := decodeAll([]byte(c.in)); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

// However bytes are cut into pieces, the text is the same, and none of the
// pieces holds half a rune.
func TestTextDecoderPieces(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		in := rapid.OneOf(
			rapid.SliceOf(rapid.Byte()),
			rapid.SliceOf(rapid.SampledFrom([]byte{'a', 0xc3, 0xa9, 0xe2, 0x98, 0x95, 0xf0, 0x9f, 0x80, 0xed, 0xff})),
			rapid.Custom(func(r *rapid.T) []byte { return []byte(rapid.String().Draw(r, "text")) }),
		).Draw(r, "bytes")
		var pieces [][]byte
		for rest := in; len(rest) > 0; {
			n := rapid.IntRange(1, min(len(rest), 5)).Draw(r, "n")
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		var d textDecoder
		for _, p := range pieces {
			if s := d.decode(p); !utf8.ValidString(s) {
				r.Fatalf("%q is not UTF-8", s)
			}
		}
		whole := decodeAll(in)
		if got := decodeAll(pieces...); got != whole {
			r.Fatalf("%q, in one piece %q", got, whole)
		}
		if utf8.Valid(in) && whole != string(in) {
			r.Fatalf("valid text %q became %q", in, whole)
		}
	})
}
