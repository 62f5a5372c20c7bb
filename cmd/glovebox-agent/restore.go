package main

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// keptDir is a directory with the attributes that it is to have again.
type keptDir struct {
	path string
	st   syscall.Stat_t
}

func (d *keptDir) restore() error {
	ts := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.Timespec(d.st.Mtim)}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, d.path, ts[:], unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return opErr("set the time of "+d.path, err)
	}
	return nil
}

func (d *keptDir) restoreAll() error {
	if err := syscall.Lchown(d.path, int(d.st.Uid), int(d.st.Gid)); err != nil {
		return opErr("chown "+d.path, err)
	}
	if err := syscall.Chmod(d.path, d.st.Mode&0o7777); err != nil { // after chown, which takes bits away
		return opErr("chmod "+d.path, err)
	}
	return d.restore()
}

// keeper remembers the times of directories in which something is made: the
// overlay changes those of all directories on the way when it copies up.
type keeper struct {
	dirs []keptDir
	seen map[string]bool
}

func newKeeper() *keeper { return &keeper{seen: map[string]bool{}} }

// keep remembers the directories above path as they are, but for the root.
func (k *keeper) keep(path string) {
	for i := len(path) - 1; i > 0; i-- {
		if path[i] != '/' {
			continue
		}
		if k.seen[path[:i]] {
			return // and with it those above
		}
		k.seen[path[:i]] = true
		d := keptDir{path: path[:i]}
		if syscall.Lstat(d.path, &d.st) == nil && d.st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
			k.dirs = append(k.dirs, d)
		}
	}
}

func (k *keeper) restore() error {
	for i := range k.dirs {
		if err := k.dirs[i].restore(); err != nil {
			return err
		}
	}
	return nil
}

// restoreExtras makes what the layers cannot hold.
func restoreExtras(m *wire.Extras, k *keeper) error {
	for i := range m.Devices {
		k.keep(m.Devices[i].Path)
		if err := makeDevice(&m.Devices[i]); err != nil {
			return opErr("make the device "+m.Devices[i].Path, err)
		}
	}
	for _, x := range m.Xattrs {
		k.keep(x.Path)
		err := unix.Lsetxattr(x.Path, x.Name, x.Value, 0)
		// A guest kernel need not know every kind, and what is not there needs
		// none: no reason to leave a sandbox without its root.
		if err != nil && err != syscall.EOPNOTSUPP && err != syscall.ENOENT {
			return opErr("set "+x.Name+" of "+x.Path, err)
		}
	}
	for _, l := range m.Links {
		k.keep(l.Path)
		if err := syscall.Unlink(l.Path); err != nil {
			return opErr("replace "+l.Path, err)
		}
		if err := syscall.Link(l.Target, l.Path); err != nil {
			return opErr("link "+l.Path, err)
		}
	}
	return nil
}

func makeDevice(d *wire.Device) error {
	if err := unix.Mknod(d.Path, d.Mode, int(unix.Mkdev(d.Major, d.Minor))); err != nil {
		return err
	}
	if err := syscall.Lchown(d.Path, int(d.UID), int(d.GID)); err != nil {
		return err
	}
	if err := syscall.Chmod(d.Path, d.Mode&0o7777); err != nil { // whatever the umask
		return err
	}
	ts := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(d.MtimeNS)}
	return unix.UtimesNanoAt(unix.AT_FDCWD, d.Path, ts[:], unix.AT_SYMLINK_NOFOLLOW)
}

// sameFile reports whether path is a file as putFile would leave it.
func sameFile(path string, data []byte) bool {
	var st syscall.Stat_t
	if syscall.Lstat(path, &st) != nil || st.Mode != syscall.S_IFREG|0o644 || st.Uid != 0 || st.Gid != 0 || st.Size != int64(len(data)) {
		return false
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	got := make([]byte, len(data)+1)
	n, err := syscall.Read(fd, got)
	return err == nil && string(got[:n]) == string(data)
}
