package server

import (
	"bytes"
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"
)

// appendJSON appends v as one line of JSON that holds ASCII alone.
//
// Everything beyond ASCII is written as \uXXXX because the published client
// turns every network chunk of a stream into text by itself: a character
// whose bytes fall into two chunks would come out as two replacement
// characters, however correct the bytes were.
func appendJSON(dst []byte, v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return dst, err
	}
	return appendASCII(dst, buf.Bytes()), nil
}

// appendASCII appends JSON text with all that is not ASCII escaped; outside
// of strings JSON has nothing but ASCII, so no parsing is needed.
func appendASCII(dst, text []byte) []byte {
	for len(text) > 0 {
		n := asciiPrefix(text)
		dst = append(dst, text[:n]...)
		text = text[n:]
		if len(text) == 0 {
			break
		}
		r, size := utf8.DecodeRune(text)
		text = text[size:]
		if hi, lo := utf16.EncodeRune(r); r > 0xFFFF {
			dst = appendEscape(appendEscape(dst, hi), lo)
			continue
		}
		dst = appendEscape(dst, r)
	}
	return dst
}

func asciiPrefix(text []byte) int {
	for i, c := range text {
		if c >= utf8.RuneSelf {
			return i
		}
	}
	return len(text)
}

func appendEscape(dst []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[r>>12&0xF], hex[r>>8&0xF], hex[r>>4&0xF], hex[r&0xF])
}
