package savedtree

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

const buffer = 64 << 10

// Writer writes a tree. Close it, or it is torn.
type Writer struct {
	w     *bufio.Writer
	buf   []byte
	nodes uint64
}

// NewWriter begins a tree.
func NewWriter(w io.Writer) *Writer {
	out := &Writer{w: bufio.NewWriterSize(w, buffer)}
	_, _ = out.w.WriteString(magic) // an error sticks
	return out
}

// Add appends a node. It refuses what a Reader would.
func (w *Writer) Add(n *Node) error {
	if err := n.check(); err != nil {
		return err
	}
	b := append(w.buf[:0], 0, 0, 0, 0)
	b = appendString(b, n.Path)
	for _, v := range [...]uint32{n.Mode, n.UID, n.GID, n.Nsec, n.Links, n.Major, n.Minor} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	for _, v := range [...]uint64{uint64(n.Sec), n.Inode, uint64(n.Size)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = appendString(b, n.Target)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(n.Xattrs)))
	for _, x := range n.Xattrs {
		b = appendString(b, x.Name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(x.Value)))
		b = append(b, x.Value...)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(n.Extents)))
	for _, e := range n.Extents {
		b = binary.LittleEndian.AppendUint64(b, uint64(e.Start))
		b = binary.LittleEndian.AppendUint64(b, uint64(e.End))
		b = binary.LittleEndian.AppendUint64(b, uint64(e.At))
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	w.buf = b
	w.nodes++
	_, err := w.w.Write(b)
	return err
}

// Close marks the tree as whole and flushes it.
func (w *Writer) Close() error {
	b := binary.LittleEndian.AppendUint32(nil, 0)
	b = binary.LittleEndian.AppendUint64(b, w.nodes)
	_, _ = w.w.Write(b) // an error sticks
	return w.w.Flush()
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// check holds both sides to the limits.
func (n *Node) check() error {
	bytes := 0
	for _, x := range n.Xattrs {
		bytes += len(x.Name) + len(x.Value)
	}
	switch {
	case len(n.Path) > MaxPath:
		return fmt.Errorf("%w: %q…: path of %d bytes, allowed are %d", ErrBad, n.Path[:200], len(n.Path), MaxPath)
	case len(n.Target) > MaxTarget:
		return fmt.Errorf("%w: %q: link target of %d bytes, allowed are %d", ErrBad, n.Path, len(n.Target), MaxTarget)
	case len(n.Xattrs) > maxXattrs || bytes > maxXattrBytes:
		return fmt.Errorf("%w: %q: %d extended attributes of %d bytes, allowed are %d of %d", ErrBad, n.Path, len(n.Xattrs), bytes, maxXattrs, maxXattrBytes)
	case len(n.Extents) > maxExtents:
		return fmt.Errorf("%w: %q: a file in %d pieces, allowed are %d: copy it", ErrBad, n.Path, len(n.Extents), maxExtents)
	}
	return nil
}
