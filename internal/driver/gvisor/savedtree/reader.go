package savedtree

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

const pageSize = 4096

// Reader reads a tree.
type Reader struct {
	r     *bufio.Reader
	left  int64 // of the input, in bytes
	buf   []byte
	nodes uint64
}

// NewReader reads a tree of size bytes, the end included.
func NewReader(r io.Reader, size int64) (*Reader, error) {
	in := &Reader{r: bufio.NewReaderSize(r, buffer), left: size}
	b, err := in.take(int64(len(magic)))
	if err != nil {
		return nil, err
	}
	if string(b) != magic {
		return nil, fmt.Errorf("%w: it begins with %q", ErrBad, b)
	}
	return in, nil
}

// Next returns the next node, or io.EOF after the last one of a whole tree.
// Nothing of it is shared with what Next returns later.
func (r *Reader) Next() (*Node, error) {
	b, err := r.take(4)
	if err != nil {
		return nil, err
	}
	size := int64(binary.LittleEndian.Uint32(b))
	if size == 0 {
		return nil, r.end()
	}
	if size > maxRecord {
		return nil, fmt.Errorf("%w: record of %d bytes", ErrBad, size)
	}
	if b, err = r.take(size); err != nil {
		return nil, err
	}
	d := decoder{b: b}
	n := d.node()
	if d.bad || len(d.b) > 0 {
		return nil, fmt.Errorf("%w: record %d is malformed", ErrBad, r.nodes)
	}
	if err := n.check(); err != nil {
		return nil, err
	}
	if err := n.checkPath(); err != nil {
		return nil, err
	}
	if err := n.checkExtents(); err != nil {
		return nil, err
	}
	r.nodes++
	return n, nil
}

func (r *Reader) end() error {
	b, err := r.take(8)
	if err != nil {
		return err
	}
	if n := binary.LittleEndian.Uint64(b); n != r.nodes || r.left != 0 {
		return fmt.Errorf("%w: %d records, %d promised, %d bytes behind", ErrBad, r.nodes, n, r.left)
	}
	return io.EOF
}

// take reads n bytes, good until the next call. Memory grows with what is
// there, not with what is promised.
func (r *Reader) take(n int64) ([]byte, error) {
	if n > r.left {
		return nil, fmt.Errorf("%w: it is torn after %d records", ErrBad, r.nodes)
	}
	r.left -= n
	if int64(cap(r.buf)) < n {
		r.buf = make([]byte, n)
	}
	b := r.buf[:n]
	if _, err := io.ReadFull(r.r, b); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: it is torn after %d records: %w", ErrBad, r.nodes, io.ErrUnexpectedEOF)
		}
		return nil, err
	}
	return b, nil
}

// checkPath refuses names that would not be where they say.
func (n *Node) checkPath() error {
	if n.Path == "" {
		return nil
	}
	for s := range strings.SplitSeq(n.Path, "/") {
		if s == "" || s == "." || s == ".." || len(s) > 255 || strings.IndexByte(s, 0) >= 0 {
			return fmt.Errorf("%w: name %q", ErrBad, n.Path)
		}
	}
	return nil
}

// checkExtents refuses pieces that overlap, lie outside of the file, or are
// not whole pages.
func (n *Node) checkExtents() error {
	if n.Size < 0 {
		return fmt.Errorf("%w: %q has %d bytes", ErrBad, n.Path, n.Size)
	}
	end := int64(0)
	for _, e := range n.Extents {
		if e.Start < end || e.End <= e.Start || e.At < 0 || (e.Start|e.End|e.At)%pageSize != 0 || e.At > 1<<62 {
			return fmt.Errorf("%w: %q has a piece from %d to %d at %d", ErrBad, n.Path, e.Start, e.End, e.At)
		}
		end = e.End
	}
	return nil
}

type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) node() *Node {
	n := &Node{Path: d.string()}
	for _, p := range [...]*uint32{&n.Mode, &n.UID, &n.GID, &n.Nsec, &n.Links, &n.Major, &n.Minor} {
		*p = d.u32()
	}
	n.Sec, n.Inode, n.Size = int64(d.u64()), d.u64(), int64(d.u64())
	n.Target = d.string()
	if k := d.count(xattrSize); k > 0 {
		n.Xattrs = make([]Xattr, k)
		for i := range n.Xattrs {
			n.Xattrs[i].Name = d.string()
			n.Xattrs[i].Value = append([]byte{}, d.bytes(int(d.u32()))...)
		}
	}
	if k := d.count(extentSize); k > 0 {
		n.Extents = make([]Extent, k)
		for i := range n.Extents {
			n.Extents[i] = Extent{int64(d.u64()), int64(d.u64()), int64(d.u64())}
		}
	}
	return n
}

// count reads how many things of at least size bytes follow.
func (d *decoder) count(size int) int {
	n := d.u32()
	if int64(n)*int64(size) > int64(len(d.b)) {
		d.bad = true
		return 0
	}
	return int(n)
}

func (d *decoder) bytes(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.bad, d.b = true, nil
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) u32() uint32 {
	if b := d.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) string() string {
	b := d.bytes(2)
	if b == nil {
		return ""
	}
	return string(d.bytes(int(binary.LittleEndian.Uint16(b))))
}
