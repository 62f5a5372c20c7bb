// Package savedtree is the form in which a sandbox kernel hands out the tree
// of a writable layer: one record for each name, parents before children, and
// a last one that tells a whole tree from a torn one. Contents are not in it,
// but where they are in the layer's file.
//
// The writer runs in the sandbox kernel, next to the guest; so the reader
// takes every byte for hostile.
package savedtree

import "errors"

// ErrBad is wrapped by every error of a Reader that says the input is at
// fault.
var ErrBad = errors.New("bad saved tree")

// Limits of one record; those of names are Linux's.
const (
	MaxPath   = 4095
	MaxTarget = 4095
	// maxXattrs and maxXattrBytes are what Linux allows one file (names and
	// values; the kernel of a guest allows more).
	maxXattrs     = 4096
	maxXattrBytes = 1 << 20
	// maxExtents bounds how scattered a file may be: 8 million pieces are 32
	// GiB of single pages.
	maxExtents = 8 << 20
	maxRecord  = MaxPath + MaxTarget + fixedSize + maxXattrs*xattrSize + maxXattrBytes + maxExtents*extentSize
)

const magic = "glovebox tree 1\n"

// Sizes of what does not vary.
const (
	fixedSize  = 4*9 + 8*3 + 2*2 + 4*2
	xattrSize  = 2 + 4
	extentSize = 3 * 8
)

// Node is one name of the tree.
type Node struct {
	Path     string // relative to the root, which is ""
	Mode     uint32 // as in st_mode
	UID, GID uint32
	Sec      int64 // of the modification time
	Nsec     uint32
	Inode    uint64
	Links    uint32
	Major    uint32 // of devices
	Minor    uint32
	Size     int64  // of regular files
	Target   string // of symbolic links
	Xattrs   []Xattr
	// Extents of a regular file, in order; what is between them is zero.
	Extents []Extent
}

// Xattr is an extended attribute.
type Xattr struct {
	Name  string
	Value []byte
}

// Extent is a piece of a file: its bytes from Start to End are those of the
// layer's file from At on. All three are whole pages.
type Extent struct{ Start, End, At int64 }
