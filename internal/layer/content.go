package layer

import (
	"context"
	"io"
)

// minHole is the run of nothing in a file that is worth a place in the
// layer's list of holes.
const minHole = 1 << 20

// content is a file's content that stays where it is.
type content struct {
	at      io.ReaderAt
	extents []Extent
}

// open returns a reader of a regular file.
func (t *Tree) open(n *inode) (io.Reader, error) {
	if n.ref != nil {
		return io.NewSectionReader(n.ref.at, 0, n.size), nil
	}
	return t.spool.section(n.off, n.size)
}

// writeRef writes size bytes of a content and zeros up to a whole block,
// leaving out what is between the extents.
func (o *output) writeRef(ctx context.Context, c *content, size int64) error {
	pos := int64(0)
	for _, x := range c.extents {
		if err := o.zeros(x.Offset - pos); err != nil {
			return err
		}
		if err := o.fill(ctx, io.NewSectionReader(c.at, x.Offset, x.Length), x.Length); err != nil {
			return err
		}
		pos = x.Offset + x.Length
	}
	return o.zeros((size+blockSize-1)&^(blockSize-1) - pos)
}
