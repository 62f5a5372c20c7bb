package layer

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// The on-disk format is that of the Linux kernel's fs/erofs/erofs_fs.h, in the
// subset that gVisor reads: extended inodes, block size 4096, directories and
// symbolic links inline where they are small, regular files always plain, so
// that they can be mapped page by page.
const (
	blockBits    = 12
	blockSize    = 1 << blockBits
	superOffset  = 1024
	superSize    = 128
	superMagic   = 0xe0f5e1e2
	inodeSize    = 64
	slotSize     = 32 // inodes are numbered by slots
	direntSize   = 12
	inlineMax    = 2048 // longer directories and targets get blocks of their own
	layoutPlain  = 0
	layoutInline = 2
	compatMTime  = 0x2 // inodes carry modification, not change times
)

// placed is an inode with its place in the image.
type placed struct {
	*inode
	nid     uint64
	ino     uint32
	nlink   uint32
	block   uint32 // first block of what is not inline
	dirSize int64  // of a directory
	parent  *placed
}

// image is a tree laid out: the superblock and the inodes, the blocks of large
// directories, the contents, in this order.
type image struct {
	order  []*placed
	byNode map[*inode]*placed
	meta   int64 // end of the inodes in bytes
	blocks int64 // of the whole image
	uuid   [16]byte
}

// Write lays the tree out as EROFS into f, which must be an empty regular
// file. It does not sync f. The bytes depend on the tree alone, but for the
// UUID of a Unique one.
func (t *Tree) Write(ctx context.Context, f *os.File) (Info, error) {
	im, err := layOut(t.root)
	if err != nil {
		return Info{}, err
	}
	im.identify(t.unique)
	out := newOutput(f, t.spool.room)
	defer out.stop()
	w := &emitter{w: out}
	if t.unique {
		out.hash.Write([]byte(sumsPrefix))
	}
	im.writeMeta(w)
	im.writeDirs(w)
	if w.flush(); w.err != nil {
		return Info{}, fmt.Errorf("write layer: %w", w.err)
	}
	if t.unique {
		if err := out.useSums(); err != nil {
			return Info{}, fmt.Errorf("write layer: %w", err)
		}
	}
	if err := im.writeContents(ctx, t.spool, out); err != nil {
		return Info{}, fmt.Errorf("write layer: %w", err)
	}
	digest, err := out.finish()
	if err != nil {
		return Info{}, fmt.Errorf("write layer: %w", err)
	}
	return Info{Digest: digest, Size: im.blocks << blockBits, Inodes: len(im.order), Meta: w.pos, Holes: out.holes}, nil
}

// identify gives the image a UUID that no other content has.
func (im *image) identify(random bool) {
	if random {
		_, _ = rand.Read(im.uuid[:]) // never fails, by its documentation
		return
	}
	id := sha256.New()
	w := &emitter{w: id}
	im.writeMeta(w)
	im.writeDirs(w)
	for _, n := range im.order {
		w.u32(n.sum)
	}
	w.flush()
	copy(im.uuid[:], id.Sum(nil))
}

// layOut numbers the inodes and gives every block its address. Children of a
// directory stand side by side, sorted by name.
func layOut(root *inode) (*image, error) {
	im := &image{byNode: map[*inode]*placed{}, meta: superOffset + superSize}
	r := im.place(root)
	r.parent = r
	im.placeKids(r)
	next := (im.meta + blockSize - 1) >> blockBits
	for _, n := range im.order {
		if n.isDir() && !n.inline() {
			n.block = uint32(next)
			next += (n.dirSize + blockSize - 1) >> blockBits
		}
	}
	for _, n := range im.order {
		if (n.isRegular() || n.isSymlink() && !n.inline()) && n.size > 0 {
			n.block = uint32(next)
			next += (n.size + blockSize - 1) >> blockBits
		}
	}
	if next > math.MaxUint32 || len(im.order) > math.MaxUint32 {
		return nil, tooLarge("the layer needs %d blocks and %d inodes", next, len(im.order))
	}
	im.blocks = next
	return im, nil
}

func (im *image) place(n *inode) *placed {
	if p, ok := im.byNode[n]; ok {
		p.nlink++
		return p
	}
	p := &placed{inode: n, ino: uint32(len(im.order) + 1), nlink: 1}
	if n.isDir() {
		p.nlink = 2
		p.dirSize = dirLength(n)
	}
	tail := p.tail()
	if im.meta%blockSize+inodeSize+tail > blockSize { // stays within one block
		im.meta = (im.meta + blockSize - 1) &^ (blockSize - 1)
	}
	p.nid = uint64(im.meta / slotSize)
	im.meta += (inodeSize + tail + slotSize - 1) &^ (slotSize - 1)
	im.byNode[n] = p
	im.order = append(im.order, p)
	return p
}

func (im *image) placeKids(d *placed) {
	var dirs []*placed
	for _, name := range sortedNames(d.inode) {
		k := im.place(d.kids[name].ino)
		if k.isDir() {
			d.nlink++
			k.parent = d
			dirs = append(dirs, k)
		}
	}
	for _, k := range dirs {
		im.placeKids(k)
	}
}

// inline reports whether the data follows the inode.
func (p *placed) inline() bool {
	switch {
	case p.isDir():
		return p.dirSize <= inlineMax
	case p.isSymlink():
		return p.size <= inlineMax
	}
	return false
}

func (p *placed) tail() int64 {
	switch {
	case !p.inline():
		return 0
	case p.isDir():
		return p.dirSize
	}
	return p.size
}

// writeMeta emits the superblock and the inodes, to a whole block.
func (im *image) writeMeta(w *emitter) {
	w.pad(superOffset)
	w.u32(superMagic)
	w.u32(0) // checksum: absent
	w.u32(compatMTime)
	w.u16(blockBits) // and no extra slots
	w.u16(uint16(im.order[0].nid))
	w.u64(uint64(len(im.order)))
	w.u64(0) // build time: each inode has a time of its own
	w.u32(0)
	w.u32(uint32(im.blocks))
	w.u32(0) // inodes are counted from block 0
	w.u32(0) // no shared attributes
	w.bytes(im.uuid[:])
	w.pad(superOffset + superSize)
	for _, n := range im.order {
		w.pad(int64(n.nid) * slotSize)
		im.writeInode(w, n)
	}
	w.pad((im.meta + blockSize - 1) &^ (blockSize - 1))
}

func (im *image) writeInode(w *emitter, n *placed) {
	format, union := uint16(1|layoutPlain<<1), n.block
	size := uint64(n.size)
	switch n.mode & unix.S_IFMT {
	case unix.S_IFDIR:
		size = uint64(n.dirSize)
	case unix.S_IFCHR, unix.S_IFBLK:
		union = n.rdev
	}
	if n.inline() {
		format, union = 1|layoutInline<<1, math.MaxUint32
	}
	w.u16(format)
	w.u16(0) // no attributes
	w.u16(uint16(n.mode))
	w.u16(0)
	w.u64(size)
	w.u32(union)
	w.u32(n.ino)
	w.u32(n.uid)
	w.u32(n.gid)
	w.u64(n.sec)
	w.u32(n.nsec)
	w.u32(n.nlink)
	w.u64(0)
	w.u64(0)
	switch {
	case !n.inline():
	case n.isDir():
		w.bytes(im.dirBytes(n))
	default:
		w.bytes([]byte(n.target))
	}
}

// writeDirs emits the directories that have blocks of their own.
func (im *image) writeDirs(w *emitter) {
	for _, n := range im.order {
		if n.isDir() && !n.inline() {
			w.bytes(im.dirBytes(n))
			w.pad((w.pos + blockSize - 1) &^ (blockSize - 1))
		}
	}
}

func (im *image) writeContents(ctx context.Context, s *spool, out *output) error {
	for _, n := range im.order {
		if n.size == 0 || n.block == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if n.isSymlink() {
			if err := out.copy(ctx, strings.NewReader(n.target), n.size); err != nil {
				return err
			}
			continue
		}
		if n.ref != nil {
			if err := out.writeRef(ctx, n.ref, n.size); err != nil {
				return err
			}
			continue
		}
		r, err := s.section(n.off, n.size)
		if err != nil {
			return err
		}
		if err := out.copy(ctx, r, n.size); err != nil {
			return err
		}
	}
	return nil
}
