// Package layer turns archives, directories and single entries into EROFS
// layers: immutable file system images that gVisor maps straight from disk.
//
// A Tree holds the names and attributes of a file system in memory and the
// contents of its files in one unlinked spool file; nothing of an archive is
// ever created on the host by the name it carries there. Several archives can
// be applied one after the other, which squashes an OCI image to one tree.
// Write then lays the tree out in an order that depends on names alone, so
// that equal trees give equal bytes and equal digests.
package layer

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// ErrArchive is wrapped by every error that says the input is at fault:
// a broken archive, a name that leads outside, an entry that cannot be.
var ErrArchive = errors.New("bad archive")

// ErrTooLarge is wrapped when the input exceeds the Limits. Such an error
// wraps ErrArchive as well.
var ErrTooLarge = errors.New("larger than allowed")

// Limits bound what hostile input can cost.
type Limits struct {
	// Bytes bounds the content of all files together, holes and files that
	// later entries replace included, and as well the length of all archives
	// after decompression.
	Bytes int64
	// Entries bounds the number of entries of all archives together; each
	// costs some 300 bytes of memory until the tree is closed.
	Entries int
	// XattrBytes bounds names and values of all extended attributes.
	XattrBytes int64
}

// DefaultLimits are used where a field of Options.Limits is zero.
var DefaultLimits = Limits{Bytes: 32 << 30, Entries: 2_000_000, XattrBytes: 16 << 20}

// Fixed limits of one entry, which are those of Linux.
const (
	maxName   = 255
	maxPath   = 4095
	maxTarget = 4095 // of a symbolic link; gVisor reads no more than this
)

// Options of a new tree.
type Options struct {
	// SpoolDir is where file contents wait on disk; it needs room for all of
	// them. The system's directory for temporary files if empty.
	SpoolDir string
	Limits   Limits
	// Unique makes every layer that is written one of its own, with another
	// UUID and digest than all others. Entry.ContentAt needs it.
	Unique bool
	// Room is asked again and again before something is written; its error
	// ends the work. Nil: the disk alone says when it is full.
	Room func() error
}

// Entry is one file, directory, symbolic link or special file.
type Entry struct {
	// Path is the absolute place in the tree; a leading slash is implied.
	Path string
	// Mode holds type and permission bits as in stat(2), S_IFREG and so on.
	Mode     uint32
	UID, GID uint32
	MTime    time.Time // to the nanosecond; the zero Time counts as 1970
	// Target is what a symbolic link says.
	Target string
	// Major and Minor number a device. A character device 0:0 hides the name
	// in the layers below when layers are stacked.
	Major, Minor uint32
	// Size and Content of a regular file: Content gives at least Size bytes,
	// of which no more than Size are read.
	Size    int64
	Content io.Reader
	// ContentAt, where it is set, is the content of a regular file in place
	// of Content. It is not copied but read when the tree is read or written,
	// and then only in Extents, which are in order and within Size; the rest
	// is zero. It must not change until the tree is closed. The tree must be
	// Unique: nobody has seen all of its content before it is written.
	ContentAt io.ReaderAt
	Extents   []Extent
	// Xattrs are kept beside the tree, see Tree.Xattrs.
	Xattrs map[string][]byte
}

// Extent is a range of a file's bytes.
type Extent struct{ Offset, Length int64 }

// Info describes a written layer.
type Info struct {
	// Digest names the layer: "sha256:…" of the file. Of a Unique one it is that of the text "glovebox layer 1" and a zero byte,
	// the file's first Meta bytes, and of each piece of the rest its offset in
	// 8 bytes, its length and its CRC-32C in 4 each, little-endian. Pieces are
	// 256 KiB long, the last one before a hole or the end perhaps shorter. To
	// hash a sandbox's disk takes many times longer than to write it.
	Digest string
	Meta   int64 // bytes of the file before the first content
	Size   int64 // length of the file in bytes
	Inodes int
	Holes  []Extent // large ranges that were not written, of a Unique one
}

// FromFiles writes a layer of just these entries, each after its parents, to
// f, which must be empty. Parents that are not listed are made, owned by root
// with mode 0755.
func FromFiles(ctx context.Context, f *os.File, entries ...Entry) (Info, error) {
	t, err := New(Options{})
	if err != nil {
		return Info{}, err
	}
	defer t.Close()
	for _, e := range entries {
		if err := t.Add(e); err != nil {
			return Info{}, err
		}
	}
	return t.Write(ctx, f)
}
