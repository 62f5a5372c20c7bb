package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	whiteoutPrefix = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
	paxXattr       = "SCHILY.xattr."
)

// Apply lays an uncompressed tar archive over the tree by the rules of an OCI
// layer: a file ".wh.NAME" removes NAME and ".wh..wh..opq" empties its
// directory of what earlier archives put there; later entries replace earlier
// ones. It reads to the end of the archive, not to the end of r.
func (t *Tree) Apply(ctx context.Context, r io.Reader) error {
	t.gen++
	in := &meter{ctx: ctx, r: r, tree: t}
	tr := tar.NewReader(in)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return in.explain(err)
		}
		if err := t.applyEntry(h, tr); err != nil {
			return in.explain(err)
		}
	}
}

func (t *Tree) applyEntry(h *tar.Header, body io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return t.countEntry()
	}
	parts, err := splitPath(h.Name)
	if err != nil {
		return err
	}
	if n := len(parts); n > 0 && strings.HasPrefix(parts[n-1], whiteoutPrefix) {
		if err := t.countEntry(); err != nil {
			return err
		}
		return t.whiteout(parts)
	}
	if h.Typeflag == tar.TypeLink {
		return t.Link(h.Name, h.Linkname)
	}
	e, err := fromHeader(h)
	if err != nil {
		return entryError(h.Name, err)
	}
	e.Content = body
	return t.Add(e)
}

func fromHeader(h *tar.Header) (Entry, error) {
	if h.Uid < 0 || int64(h.Uid) > math.MaxUint32 || h.Gid < 0 || int64(h.Gid) > math.MaxUint32 {
		return Entry{}, fmt.Errorf("owner %d:%d is out of range", h.Uid, h.Gid)
	}
	e := Entry{Path: h.Name, Mode: uint32(h.Mode) & 0o7777, UID: uint32(h.Uid), GID: uint32(h.Gid), MTime: h.ModTime}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		e.Mode |= unix.S_IFREG
		e.Size = h.Size
	case tar.TypeDir:
		e.Mode |= unix.S_IFDIR
	case tar.TypeSymlink:
		e.Mode |= unix.S_IFLNK
		e.Target = h.Linkname
	case tar.TypeFifo:
		e.Mode |= unix.S_IFIFO
	case tar.TypeChar, tar.TypeBlock:
		e.Mode |= unix.S_IFCHR
		if h.Typeflag == tar.TypeBlock {
			e.Mode = e.Mode&^unix.S_IFMT | unix.S_IFBLK
		}
		if h.Devmajor < 0 || h.Devmajor > math.MaxUint32 || h.Devminor < 0 || h.Devminor > math.MaxUint32 {
			return Entry{}, fmt.Errorf("device number %d:%d is out of range", h.Devmajor, h.Devminor)
		}
		e.Major, e.Minor = uint32(h.Devmajor), uint32(h.Devminor)
	default:
		return Entry{}, fmt.Errorf("entries of type %q are not supported", h.Typeflag)
	}
	for k, v := range h.PAXRecords {
		if name, ok := strings.CutPrefix(k, paxXattr); ok {
			if e.Xattrs == nil {
				e.Xattrs = map[string][]byte{}
			}
			e.Xattrs[name] = []byte(v)
		}
	}
	return e, nil
}

// whiteout acts on what earlier archives put into the tree, so that the order
// of entries within one archive does not matter.
func (t *Tree) whiteout(parts []string) error {
	name := parts[len(parts)-1]
	d := t.lookup(parts[:len(parts)-1])
	if name == whiteoutOpaque {
		if d != nil && d.isDir() {
			t.prune(d)
		}
		return nil
	}
	if strings.HasPrefix(name, whiteoutMeta) {
		return nil // bookkeeping of AUFS
	}
	name = name[len(whiteoutPrefix):]
	if name == "" || name == "." || name == ".." {
		return entryError(strings.Join(parts, "/"), fmt.Errorf("whiteout without a name"))
	}
	if d == nil || !d.isDir() {
		return nil
	}
	if k, ok := d.kids[name]; ok && t.pruneName(k) {
		delete(d.kids, name)
	}
	return nil
}

// prune empties d of the names that earlier archives gave.
func (t *Tree) prune(d *inode) {
	for name, k := range d.kids {
		if t.pruneName(k) {
			delete(d.kids, name)
		}
	}
}

// pruneName empties k and reports whether k itself has to go.
func (t *Tree) pruneName(k dirent) bool {
	if k.ino.isDir() {
		t.prune(k.ino)
	}
	return k.gen != t.gen && len(k.ino.kids) == 0
}

// meter passes an archive on, bounded in length and ended by its context.
type meter struct {
	ctx  context.Context
	r    io.Reader
	tree *Tree
	err  error // what the source said, io.EOF aside
}

func (m *meter) Read(b []byte) (int, error) {
	if m.err == nil {
		m.err = m.ctx.Err()
	}
	if m.err == nil && m.tree.stream > m.tree.limits.Bytes {
		m.err = tooLarge("more than %d bytes of archive", m.tree.limits.Bytes)
	}
	if m.err != nil {
		return 0, m.err
	}
	n, err := m.r.Read(b)
	m.tree.stream += int64(n)
	if err != nil && err != io.EOF {
		m.err = err
	}
	return n, err
}

// explain tells an unreadable source from a bad archive.
func (m *meter) explain(err error) error {
	switch {
	case m.err != nil:
		return m.err
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong), errors.Is(err, io.ErrUnexpectedEOF):
		if !errors.Is(err, ErrArchive) {
			return fmt.Errorf("%w: %w", ErrArchive, err)
		}
	}
	return err
}
