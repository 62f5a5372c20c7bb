package layer

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

func (t *Tree) countEntry() error {
	if t.entries++; t.entries > t.limits.Entries {
		return tooLarge("more than %d entries", t.limits.Entries)
	}
	return nil
}

// count charges an entry to the limits before anything of it is stored.
func (t *Tree) count(e Entry) error {
	if err := t.countEntry(); err != nil {
		return err
	}
	if e.Size < 0 {
		return entryError(e.Path, fmt.Errorf("size %d is negative", e.Size))
	}
	if e.Mode&unix.S_IFMT == unix.S_IFREG {
		size := e.Size
		if e.ContentAt != nil {
			var err error
			if size, err = extentBytes(e); err != nil {
				return entryError(e.Path, err)
			}
		}
		if size > t.limits.Bytes-t.content {
			return tooLarge("at %q: more than %d bytes of file content", clip(e.Path), t.limits.Bytes)
		}
		t.content += size
	}
	for name, v := range e.Xattrs {
		if t.xattrs += int64(len(name) + len(v)); t.xattrs > t.limits.XattrBytes {
			return tooLarge("at %q: more than %d bytes of extended attributes", clip(e.Path), t.limits.XattrBytes)
		}
	}
	return nil
}

// extentBytes is the sum of an entry's extents.
func extentBytes(e Entry) (sum int64, err error) {
	end := int64(0)
	for _, x := range e.Extents {
		if x.Offset < end || x.Length <= 0 || x.Offset > e.Size-x.Length {
			return 0, fmt.Errorf("extent of %d bytes at %d is out of order or outside of the file", x.Length, x.Offset)
		}
		end = x.Offset + x.Length
		sum += x.Length
	}
	return sum, nil
}

func tooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: %w: %s", ErrArchive, ErrTooLarge, fmt.Sprintf(format, args...))
}

func entryError(path string, err error) error {
	return fmt.Errorf("%w: entry %q: %w", ErrArchive, clip(path), err)
}

// clip keeps hostile names from filling logs.
func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// splitPath returns the components of an archive's name for a place in the
// tree. Absolute names are taken from the root of the tree, as image builders
// write them; a name with ".." is refused even where it would stay inside.
func splitPath(p string) ([]string, error) {
	if len(p) > maxPath {
		return nil, entryError(p, fmt.Errorf("name of %d bytes, allowed are %d", len(p), maxPath))
	}
	var parts []string
	for s := range strings.SplitSeq(p, "/") {
		switch {
		case s == "" || s == ".":
		case s == "..":
			return nil, entryError(p, fmt.Errorf("names with .. are not allowed"))
		case len(s) > maxName:
			return nil, entryError(p, fmt.Errorf("component of %d bytes, allowed are %d", len(s), maxName))
		case strings.ContainsRune(s, 0):
			return nil, entryError(p, fmt.Errorf("names with NUL are not allowed"))
		default:
			parts = append(parts, s)
		}
	}
	return parts, nil
}
