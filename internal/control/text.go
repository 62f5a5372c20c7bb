package control

import (
	"strings"
	"unicode/utf8"
)

// textDecoder turns the bytes of one stream into text, in pieces: invalid
// bytes become U+FFFD as the WHATWG's UTF-8 decoder makes them (one for each
// maximal part of a sequence), and an incomplete sequence is held back until
// it is complete. The zero value is ready.
type textDecoder struct {
	held [utf8.UTFMax]byte
	n    int // bytes in held
}

const replacement = "\uFFFD"

// decode returns the text that b completes.
func (d *textDecoder) decode(b []byte) string {
	if d.n == 0 && utf8.Valid(b) {
		return string(b)
	}
	if d.n > 0 {
		b = append(d.held[:d.n:d.n], b...)
		d.n = 0
	}
	var out strings.Builder
	out.Grow(len(b))
	for start, i := 0, 0; ; {
		// Whole runes are copied in runs.
		for i < len(b) {
			r, size := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			i += size
		}
		out.Write(b[start:i])
		if i == len(b) {
			return out.String()
		}
		n, incomplete := badSequence(b[i:])
		if incomplete {
			d.n = copy(d.held[:], b[i:])
			return out.String()
		}
		out.WriteString(replacement)
		i += n
		start = i
	}
}

// flush returns what stands for an incomplete sequence at the stream's end.
func (d *textDecoder) flush() string {
	if d.n == 0 {
		return ""
	}
	d.n = 0
	return replacement
}

// badSequence measures the sequence that b, which does not begin with a whole
// rune, begins with: how many bytes one U+FFFD stands for, or that more bytes
// could still complete it.
func badSequence(b []byte) (n int, incomplete bool) {
	need, low, high := 0, byte(0x80), byte(0xBF)
	switch c := b[0]; {
	case c >= 0xC2 && c <= 0xDF:
		need = 1
	case c >= 0xE0 && c <= 0xEF:
		need = 2
		switch c {
		case 0xE0:
			low = 0xA0
		case 0xED:
			high = 0x9F
		}
	case c >= 0xF0 && c <= 0xF4:
		need = 3
		switch c {
		case 0xF0:
			low = 0x90
		case 0xF4:
			high = 0x8F
		}
	}
	for n = 1; n <= need; n++ {
		if n == len(b) {
			return n, true
		}
		if b[n] < low || b[n] > high {
			return n, false
		}
		low, high = 0x80, 0xBF
	}
	return n, false
}
