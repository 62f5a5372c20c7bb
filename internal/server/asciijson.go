package server

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/api"
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

// appendLog appends an item of output, as appendJSON of an api.LogLine does
// but in one pass: output is most of what a server sends.
func appendLog(dst []byte, stream, data string) []byte {
	dst = append(dst, `{"stream":"`...)
	dst = append(dst, stream...)
	dst = append(dst, `","data":"`...)
	dst = appendText(dst, data)
	return append(dst, "\"}\n"...)
}

// appendRawLog is appendLog for bytes, in base64.
func appendRawLog(dst []byte, stream, data string) []byte {
	dst = append(dst, `{"stream":"`...)
	dst = append(dst, stream...)
	dst = append(dst, `","encoding":"`+api.EncodingBase64+`","data":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, []byte(data))
	return append(dst, "\"}\n"...)
}

// appendText appends what stands between the quotes of a JSON string.
func appendText(dst []byte, s string) []byte {
	for start, i := 0, 0; ; {
		for i < len(s) && plain[s[i]] {
			i++
		}
		dst = append(dst, s[start:i]...)
		if i == len(s) {
			return dst
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		start = i
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r > 0xFFFF:
			hi, lo := utf16.EncodeRune(r)
			dst = appendEscape(appendEscape(dst, hi), lo)
		default:
			dst = appendEscape(dst, r)
		}
	}
}

// plain are the bytes that stand for themselves in a JSON string.
var plain = func() (t [256]bool) {
	for c := byte(0x20); c < 0x7F; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

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
