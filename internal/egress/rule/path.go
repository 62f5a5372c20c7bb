package rule

import (
	"errors"
	"strings"
)

// ErrPath is a path that no two servers would read alike.
var ErrPath = errors.New("the path is malformed: it must begin with /, and every % must begin an escape, none of NUL")

// Canonical returns the form of an escaped path in which it is matched and
// sent on: escapes only where they are needed and in upper case, no empty
// segments, no "." and "..". An escaped slash stays one: to some servers it
// is part of a name.
func Canonical(p string) (string, error) {
	e, err := normalEscapes(p)
	if err != nil {
		return "", err
	}
	if e[0] != '/' {
		return "", ErrPath
	}
	return removeDots(e), nil
}

// removeDots also merges slashes. A path that ended in a slash, or in a dot
// segment, ends in one.
func removeDots(p string) string {
	var out []string
	segments := strings.Split(p[1:], "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".", "":
		case "..":
			out = out[:max(0, len(out)-1)]
		default:
			out = append(out, s)
			continue
		}
		if last {
			out = append(out, "")
		}
	}
	return "/" + strings.Join(out, "/")
}

// normalEscapes decodes what needs no escape and escapes what does.
func normalEscapes(p string) (string, error) {
	if p == "" {
		return "", ErrPath
	}
	var b strings.Builder
	b.Grow(len(p))
	for i := 0; i < len(p); i++ {
		c := p[i]
		if c == 0 {
			return "", ErrPath
		}
		if c != '%' {
			writeByte(&b, c, literal(c))
			continue
		}
		if i+2 >= len(p) {
			return "", ErrPath
		}
		hi, lo := unhex(p[i+1]), unhex(p[i+2])
		if hi < 0 || lo < 0 || hi == 0 && lo == 0 {
			return "", ErrPath
		}
		i += 2
		c = byte(hi<<4 | lo)
		writeByte(&b, c, unreserved(c))
	}
	return b.String(), nil
}

func writeByte(b *strings.Builder, c byte, plain bool) {
	if plain {
		b.WriteByte(c)
		return
	}
	const digits = "0123456789ABCDEF"
	b.Write([]byte{'%', digits[c>>4], digits[c&15]})
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// unreserved characters mean the same with and without an escape (RFC 3986,
// 2.3).
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// literal are the characters that a path may hold as they are.
func literal(c byte) bool {
	return unreserved(c) || strings.IndexByte("/!$&'()*+,;=:@", c) >= 0
}

// readings are the ways in which servers may take a canonical path: as it
// is; with escaped slashes and backslashes as separators; with the ";…" of
// segments cut off; decoded once more than they should. Where two readings
// would choose different rules, the request is ambiguous.
func readings(canonical string) []string {
	out := []string{canonical}
	add := func(p string) {
		if p != "" && p[0] == '/' {
			if p = removeDots(p); p != out[0] {
				out = append(out, p)
			}
		}
	}
	slashes := strings.NewReplacer("%2F", "/", "%5C", "/")
	if strings.Contains(canonical, "%2F") || strings.Contains(canonical, "%5C") {
		add(slashes.Replace(canonical))
	}
	if plain := strings.ReplaceAll(canonical, "%3B", ";"); strings.Contains(plain, ";") {
		add(cutParameters(slashes.Replace(plain)))
	}
	if strings.Contains(canonical, "%25") {
		twice := canonical
		for range 3 {
			next, err := normalEscapes(strings.ReplaceAll(twice, "%25", "%"))
			if err != nil || next == twice {
				break
			}
			twice = next
		}
		add(cutParameters(slashes.Replace(twice)))
	}
	return out
}

func cutParameters(p string) string {
	segments := strings.Split(p, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}
