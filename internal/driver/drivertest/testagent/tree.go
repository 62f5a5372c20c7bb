package main

import (
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// tree DIR: makes DIR, and in it one file of each kind.
func tree(a []string) {
	d := a[0]
	fail(os.Mkdir(d, 0o755))
	fail(os.Mkdir(d+"/dir", 0o750))
	fail(os.WriteFile(d+"/dir/file", []byte("content"), 0o600))
	fail(os.Lchown(d+"/dir/file", 12, 34))
	fail(syscall.Chmod(d+"/dir/file", 0o4711)) // chown takes the bit away
	fail(os.Link(d+"/dir/file", d+"/hard"))
	fail(os.Symlink("dir/file", d+"/soft"))
	fail(syscall.Mkfifo(d+"/fifo", 0o640))
	l, err := net.Listen("unix", d+"/socket")
	fail(err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	fail(l.Close())
	fail(syscall.Mknod(d+"/device", syscall.S_IFBLK|0o660, 7<<8|5))
	fail(syscall.Chmod(d+"/device", 0o660)) // whatever the umask
	fail(syscall.Mknod(d+"/gone", syscall.S_IFCHR, 0))
	f, err := os.Create(d + "/sparse")
	fail(err)
	_, err = f.WriteAt([]byte("island"), 1<<30)
	fail(err)
	fail(f.Truncate(2 << 30))
	fail(f.Close())
	fail(syscall.Setxattr(d+"/dir", "user.binary", []byte{0, 255, '='}, 0))
	fail(syscall.Setxattr(d+"/dir", "user.empty=", nil, 0))
	fail(os.WriteFile(d+"/"+strings.Repeat("\xff", 255), nil, 0o644))
	fail(os.Chtimes(d+"/dir/file", time.Time{}, time.Unix(1, 23)))
}
