package layer

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

func sortedNames(n *inode) []string {
	names := make([]string, 0, len(n.kids)+2)
	for name := range n.kids {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// direntNames are a directory's names as they are stored: sorted by bytes,
// the two that every directory has among them.
func direntNames(n *inode) []string {
	names := append(sortedNames(n), ".", "..")
	slices.Sort(names)
	return names
}

// dirLength is the length of what dirBytes gives.
func dirLength(n *inode) int64 {
	var full, used int64
	for _, name := range direntNames(n) {
		need := int64(direntSize + len(name))
		if used+need > blockSize {
			full += blockSize
			used = 0
		}
		used += need
	}
	return full + used
}

// dirBytes encodes a directory: blocks of entries, followed by their names.
func (im *image) dirBytes(d *placed) []byte {
	out := make([]byte, 0, d.dirSize)
	for names := direntNames(d.inode); len(names) > 0; {
		count, used := 0, 0
		for count < len(names) && used+direntSize+len(names[count]) <= blockSize {
			used += direntSize + len(names[count])
			count++
		}
		nameOff := count * direntSize
		for _, name := range names[:count] {
			n := d
			switch name {
			case ".":
			case "..":
				n = d.parent
			default:
				n = im.byNode[d.kids[name].ino]
			}
			out = binary.LittleEndian.AppendUint64(out, n.nid)
			out = binary.LittleEndian.AppendUint16(out, uint16(nameOff))
			out = append(out, fileType(n.mode), 0)
			nameOff += len(name)
		}
		for _, name := range names[:count] {
			out = append(out, name...)
		}
		if names = names[count:]; len(names) > 0 {
			out = append(out, zeros[:blockSize-used]...)
		}
	}
	return out
}

func fileType(mode uint32) byte {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 1
	case unix.S_IFDIR:
		return 2
	case unix.S_IFCHR:
		return 3
	case unix.S_IFBLK:
		return 4
	case unix.S_IFIFO:
		return 5
	case unix.S_IFSOCK:
		return 6
	}
	return 7 // symbolic link
}
