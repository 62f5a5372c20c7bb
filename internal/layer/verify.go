package layer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// Verify reads the file of a Unique layer and compares it with the Info that
// Write gave. The error wraps ErrArchive if the file is another.
func (i Info) Verify(ctx context.Context, f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if fi.Size() != i.Size || i.Meta < 0 || i.Meta > i.Size {
		return fmt.Errorf("%w: %s has %d bytes instead of %d", ErrArchive, f.Name(), fi.Size(), i.Size)
	}
	h := sha256.New()
	h.Write([]byte(sumsPrefix))
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, i.Meta)); err != nil {
		return err
	}
	buf := make([]byte, pieceSize)
	pos := i.Meta
	for n := 0; pos < i.Size; n++ {
		end, next := i.Size, i.Size
		if n < len(i.Holes) {
			end, next = i.Holes[n].Offset, i.Holes[n].Offset+i.Holes[n].Length
		}
		if end < pos || next < end || next > i.Size {
			return fmt.Errorf("%w: the holes of %s are out of order", ErrArchive, f.Name())
		}
		for ; pos < end; pos += int64(len(buf)) {
			if err := ctx.Err(); err != nil {
				return err
			}
			buf = buf[:min(pieceSize, end-pos)]
			if _, err := f.ReadAt(buf, pos); err != nil {
				return err
			}
			piece{buf, pos, true}.hash(h)
		}
		buf = buf[:cap(buf)]
		pos = next
	}
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != i.Digest {
		return fmt.Errorf("%w: %s has changed on disk: it is %s", ErrArchive, f.Name(), got)
	}
	return nil
}
