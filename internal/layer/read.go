package layer

import (
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// maxLinks bounds the symbolic links of one look-up, as in Linux.
const maxLinks = 40

// ReadFile returns the content of a regular file of at most max bytes.
// Symbolic links are followed inside the tree, whose root no ".." leaves.
// The error wraps fs.ErrNotExist if there is no such file.
func (t *Tree) ReadFile(name string, max int64) ([]byte, error) {
	n, err := t.resolve(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if !n.isRegular() {
		return nil, fmt.Errorf("read %s: not a regular file", name)
	}
	if n.size > max {
		return nil, fmt.Errorf("read %s: %w: %d bytes, allowed are %d", name, ErrTooLarge, n.size, max)
	}
	r, err := t.open(n)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// resolve follows symbolic links, the last one too.
func (t *Tree) resolve(name string) (*inode, error) {
	stack := []*inode{t.root}
	todo := strings.Split(name, "/")
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		d := stack[len(stack)-1]
		switch part {
		case "", ".":
			continue
		case "..":
			stack = stack[:max(1, len(stack)-1)]
			continue
		}
		k, ok := d.kids[part]
		if !ok {
			return nil, fs.ErrNotExist
		}
		if !k.ino.isSymlink() {
			stack = append(stack, k.ino)
			continue
		}
		if links++; links > maxLinks {
			return nil, fmt.Errorf("too many symbolic links")
		}
		if strings.HasPrefix(k.ino.target, "/") {
			stack = stack[:1]
		}
		todo = append(strings.Split(k.ino.target, "/"), todo...)
	}
	return stack[len(stack)-1], nil
}

// Mode returns type and permissions of what has this name, and false if there
// is none. Links are not followed.
func (t *Tree) Mode(name string) (uint32, bool) {
	n := t.root
	for part := range strings.SplitSeq(name, "/") {
		if part == "" {
			continue
		}
		k, ok := n.kids[part]
		if !ok {
			return 0, false
		}
		n = k.ino
	}
	return n.mode, true
}
