package layer

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Tree is a file system under construction. Create it with New, fill it with
// Apply, ApplyDir, Add, Link and Remove, read it with ReadFile and Xattrs,
// write it out with Write as often as wanted, and Close it.
//
// A Tree is not safe for concurrent use. After an error of a filling call the
// tree holds a part of the input: close it.
type Tree struct {
	limits  Limits
	spool   *spool
	root    *inode
	gen     uint32 // counts archives: whiteouts act on earlier ones alone
	entries int
	content int64 // bytes of file content so far
	stream  int64 // bytes of archives so far
	xattrs  int64
	unique  bool
}

// inode is a file whatever its names. Two names of one inode are hard links.
type inode struct {
	mode     uint32
	uid, gid uint32
	sec      uint64
	nsec     uint32
	rdev     uint32
	size     int64
	off      int64    // of the content in the spool
	sum      uint32   // CRC-32C of the content in the spool
	ref      *content // of a regular file that is not in the spool
	target   string
	kids     map[string]dirent // of a directory, and of nothing else
	xattrs   map[string][]byte
}

// dirent is one name in a directory, and the archive that it came from.
type dirent struct {
	ino *inode
	gen uint32
}

// New makes an empty tree: a root directory, owned by root, mode 0755.
func New(o Options) (*Tree, error) {
	l := o.Limits
	if l.Bytes == 0 {
		l.Bytes = DefaultLimits.Bytes
	}
	if l.Entries == 0 {
		l.Entries = DefaultLimits.Entries
	}
	if l.XattrBytes == 0 {
		l.XattrBytes = DefaultLimits.XattrBytes
	}
	s, err := newSpool(o.SpoolDir, o.Room)
	if err != nil {
		return nil, err
	}
	return &Tree{limits: l, spool: s, root: newDir(), unique: o.Unique}, nil
}

// Close frees the spool. The tree cannot be used afterwards.
func (t *Tree) Close() error { return t.spool.close() }

func newDir() *inode {
	return &inode{mode: unix.S_IFDIR | 0o755, kids: map[string]dirent{}}
}

func (i *inode) isDir() bool     { return i.mode&unix.S_IFMT == unix.S_IFDIR }
func (i *inode) isRegular() bool { return i.mode&unix.S_IFMT == unix.S_IFREG }
func (i *inode) isSymlink() bool { return i.mode&unix.S_IFMT == unix.S_IFLNK }

// Add puts an entry into the tree. It replaces what has the name already,
// except that a directory over a directory keeps what is in it.
func (t *Tree) Add(e Entry) error {
	parts, err := splitPath(e.Path)
	if err != nil {
		return err
	}
	if err := t.count(e); err != nil {
		return err
	}
	n, err := newInode(e)
	if err != nil {
		return entryError(e.Path, err)
	}
	switch {
	case n.isRegular() && e.ContentAt != nil && !t.unique:
		return entryError(e.Path, errors.New("content that is not copied needs a Unique tree"))
	case n.isRegular() && e.ContentAt != nil:
		n.ref = &content{e.ContentAt, e.Extents}
	case n.isRegular():
		if n.off, n.sum, err = t.spool.add(e.Content, e.Size); err != nil {
			return fmt.Errorf("content of %q: %w", e.Path, err)
		}
	}
	if err := t.put(parts, n); err != nil {
		return entryError(e.Path, err)
	}
	return nil
}

// Link gives the file at target another name.
func (t *Tree) Link(name, target string) error {
	if err := t.countEntry(); err != nil {
		return err
	}
	from, err := splitPath(target)
	if err != nil {
		return entryError(name, fmt.Errorf("hard link to %q: %w", target, err))
	}
	to, err := splitPath(name)
	if err != nil {
		return err
	}
	n := t.lookup(from)
	switch {
	case n == nil:
		return entryError(name, fmt.Errorf("hard link to %q, which the archive does not have", target))
	case n.isDir():
		return entryError(name, fmt.Errorf("hard link to %q, which is a directory", target))
	}
	if err := t.put(to, n); err != nil {
		return entryError(name, err)
	}
	return nil
}

// Remove takes away the name and everything below it; a name that is not
// there is no error.
func (t *Tree) Remove(name string) error {
	parts, err := splitPath(name)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		t.root.kids = map[string]dirent{}
		return nil
	}
	if d := t.lookup(parts[:len(parts)-1]); d != nil && d.isDir() {
		delete(d.kids, parts[len(parts)-1])
	}
	return nil
}

// Xattrs returns the extended attributes of all files by absolute path and
// name. A layer cannot carry them: who mounts it must set them again.
func (t *Tree) Xattrs() map[string]map[string][]byte {
	out := map[string]map[string][]byte{}
	var walk func(p string, n *inode)
	walk = func(p string, n *inode) {
		if len(n.xattrs) > 0 {
			out[p] = maps.Clone(n.xattrs)
		}
		for name, k := range n.kids {
			walk(strings.TrimSuffix(p, "/")+"/"+name, k.ino)
		}
	}
	walk("/", t.root)
	return out
}

// put names n by parts, making parents as needed.
func (t *Tree) put(parts []string, n *inode) error {
	if len(parts) == 0 {
		if !n.isDir() {
			return fmt.Errorf("the root of the tree is a directory and cannot be replaced")
		}
		n.kids = t.root.kids
		t.root = n
		return nil
	}
	d, err := t.parent(parts)
	if err != nil {
		return err
	}
	name := parts[len(parts)-1]
	if old, ok := d.kids[name]; ok && old.ino.isDir() && n.isDir() {
		n.kids = old.ino.kids
	}
	d.kids[strings.Clone(name)] = dirent{n, t.gen}
	return nil
}

// parent finds or makes the directory that holds the last of parts. What is
// in the way makes room if it came from an earlier archive, as it would under
// an overlay; within one archive it is an error, so that no entry can pass
// through a link.
func (t *Tree) parent(parts []string) (*inode, error) {
	d := t.root
	for i, name := range parts[:len(parts)-1] {
		k, ok := d.kids[name]
		if ok && k.ino.isDir() {
			d = k.ino
			continue
		}
		if ok && k.gen == t.gen {
			what := "a file"
			if k.ino.isSymlink() {
				what = "a symbolic link"
			}
			return nil, fmt.Errorf("/%s is %s, not a directory", strings.Join(parts[:i+1], "/"), what)
		}
		n := newDir()
		d.kids[strings.Clone(name)] = dirent{n, t.gen}
		d = n
	}
	return d, nil
}

// lookup finds an inode without following links; nil if there is none.
func (t *Tree) lookup(parts []string) *inode {
	n := t.root
	for _, name := range parts {
		k, ok := n.kids[name]
		if !ok {
			return nil
		}
		n = k.ino
	}
	return n
}

func newInode(e Entry) (*inode, error) {
	n := &inode{mode: e.Mode & (unix.S_IFMT | 0o7777), uid: e.UID, gid: e.GID}
	if !e.MTime.IsZero() {
		n.sec, n.nsec = uint64(e.MTime.Unix()), uint32(e.MTime.Nanosecond()) // before 1970 as two's complement
	}
	switch n.mode & unix.S_IFMT {
	case unix.S_IFDIR:
		n.kids = map[string]dirent{}
	case unix.S_IFLNK:
		if e.Target == "" || len(e.Target) > maxTarget || strings.ContainsRune(e.Target, 0) {
			return nil, fmt.Errorf("symbolic link with a target of %d bytes, allowed are 1 to %d without NUL", len(e.Target), maxTarget)
		}
		n.target, n.size = strings.Clone(e.Target), int64(len(e.Target))
	case unix.S_IFREG:
		n.size = e.Size
	case unix.S_IFCHR, unix.S_IFBLK:
		if e.Major > 0xfff || e.Minor > 0xfffff {
			return nil, fmt.Errorf("device number %d:%d is out of range", e.Major, e.Minor)
		}
		n.rdev = e.Minor&0xff | e.Major<<8 | e.Minor&^0xff<<12
	case unix.S_IFIFO, unix.S_IFSOCK:
	default:
		return nil, fmt.Errorf("mode %#o has no known file type", e.Mode)
	}
	for name, v := range e.Xattrs {
		if keepXattr(name) {
			if !utf8.ValidString(e.Path) || !utf8.ValidString(name) {
				return nil, fmt.Errorf("extended attributes need names in UTF-8")
			}
			if n.xattrs == nil {
				n.xattrs = map[string][]byte{}
			}
			n.xattrs[name] = v
		}
	}
	return n, nil
}

// keepXattr says which attributes mean anything inside a sandbox. Labels of
// the build host's security modules would cost a copy of each file there, and
// an overlay's own marks would be obeyed by the overlay above the layer.
func keepXattr(name string) bool {
	switch {
	case strings.HasPrefix(name, "user.overlay."), strings.HasPrefix(name, "trusted.overlay."):
		return false
	case name == "security.capability":
		return true
	case strings.HasPrefix(name, "user."), strings.HasPrefix(name, "trusted."), strings.HasPrefix(name, "system.posix_acl_"):
		return true
	}
	return false
}
