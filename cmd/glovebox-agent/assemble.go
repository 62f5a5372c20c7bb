package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// Where a driver puts the parts of the root, as package driver says.
const (
	upperDir   = "/up"
	newRootDir = "/newroot"
	maxLayers  = 8
)

func layerDir(i int) string { return "/l" + itoa(i) }

func (a *agent) assembleRequest(p []byte) *wire.Failure {
	var m wire.Assembly
	if m.Decode(p) != nil || m.Layers < 1 || m.Layers > maxLayers || !validDrives(m.Drives) {
		return badRequest
	}
	if a.assembled {
		return &wire.Failure{Code: wire.CodeBadRequest, Text: "the root is assembled already"}
	}
	if err := a.assemble(&m); err != nil {
		return errnoFailure("assemble", err)
	}
	a.assembled = true
	return nil
}

// assemble makes the root, leaves the old one behind, and gives up the means
// to do it again: commands run as children of this process, and none of them
// may mount anything.
func (a *agent) assemble(m *wire.Assembly) error {
	if err := a.cgroups.mount(newRootDir); err != nil {
		return err
	}
	// The root of an overlay has the attributes of the writable layer's.
	root := keptDir{path: "/"}
	if err := syscall.Lstat(layerDir(int(m.Layers)-1), &root.st); err != nil {
		return opErr("stat the topmost layer", err)
	}
	if err := mountRoot(int(m.Layers)); err != nil {
		return err
	}
	if err := pivot(); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(m.Hostname)); err != nil {
		return opErr("set the hostname", err)
	}
	if err := populate(m); err != nil {
		return err
	}
	for i := range m.Drives {
		if err := mountDrive(i, &m.Drives[i], m); err != nil {
			return err
		}
	}
	if err := leaveOldRoot(&root); err != nil {
		return err
	}
	if err := nullStdin(); err != nil {
		return opErr("open /dev/null", err)
	}
	return dropCapabilities()
}

// mountRoot mounts the overlay and, in it, the kernel's file systems.
func mountRoot(layers int) error {
	for _, d := range []string{upperDir + "/u", upperDir + "/w"} {
		if err := syscall.Mkdir(d, 0o755); err != nil && err != syscall.EEXIST {
			return opErr("make "+d, err)
		}
	}
	lower := ""
	for i := layers - 1; i >= 0; i-- { // the topmost comes first
		lower += ":" + layerDir(i)
	}
	if err := mountOverlay(newRootDir, lower[1:], upperDir); err != nil {
		return err
	}
	for _, d := range []string{"/proc", "/sys", "/dev"} {
		to := newRootDir + d
		if err := syscall.Mkdir(to, 0o755); err != nil && err != syscall.EEXIST {
			return opErr("make "+d, err)
		}
		if err := syscall.Mount(d, to, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
			return opErr("bind "+d, err)
		}
	}
	return nil
}

// mountOverlay mounts an overlay of lower, topmost first, under the writable
// layer that is in upper.
func mountOverlay(at, lower, upper string) error {
	// userxattr: the marks of opaque directories can be read without
	// CAP_SYS_ADMIN.
	opt := "lowerdir=" + lower + ",upperdir=" + upper + "/u,workdir=" + upper + "/w,userxattr"
	if err := syscall.Mount("overlay", at, "overlay", 0, opt); err != nil {
		return opErr("mount the overlay at "+at, err)
	}
	return nil
}

// oldRoot is where the bare machine's root is until it is left for good.
const oldRoot = "/.glovebox-old"

// pivot makes the overlay the root; the old one stays for a while.
func pivot() error {
	if err := syscall.Mkdir(newRootDir+oldRoot, 0o700); err != nil {
		return opErr("make a place for the old root", err)
	}
	if err := syscall.PivotRoot(newRootDir, newRootDir+oldRoot); err != nil {
		return opErr("pivot_root", err)
	}
	if err := syscall.Chdir("/"); err != nil {
		return opErr("enter the root", err)
	}
	return nil
}

// leaveOldRoot detaches the old root, where this program's own file is: nobody
// can reach it after that.
func leaveOldRoot(root *keptDir) error {
	if err := syscall.Unmount(oldRoot, syscall.MNT_DETACH); err != nil {
		return opErr("detach the old root", err)
	}
	if err := syscall.Rmdir(oldRoot); err != nil {
		return opErr("remove the old root's place", err)
	}
	return root.restoreAll() // it has changed the time
}

// populate adds what no image brings, or what it may lack, and leaves no
// trace of it in the times of directories.
func populate(m *wire.Assembly) error {
	k := newKeeper()
	if !m.Resumed {
		if err := populateImage(m, k); err != nil {
			return err
		}
	}
	for _, f := range m.Files {
		if sameFile(f.Path, f.Data) {
			continue
		}
		k.keep(f.Path)
		if err := putFile(f.Path, f.Data); err != nil {
			return err
		}
	}
	if err := restoreExtras(&m.Extras, k); err != nil {
		return err
	}
	for i := range m.Drives {
		k.keep(m.Drives[i].Path)
		if err := ensureDir(m.Drives[i].Path, 0o755, 0, 0); err != nil {
			return err
		}
	}
	return k.restore()
}

// populateImage makes the directories that every sandbox has.
func populateImage(m *wire.Assembly, k *keeper) error {
	if err := ensureDir("/tmp", 0o1777, 0, 0); err != nil {
		return err
	}
	var st syscall.Stat_t
	if err := syscall.Stat("/tmp", &st); err != nil {
		return opErr("stat /tmp", err)
	}
	if st.Mode&0o7777 != 0o1777 {
		if err := syscall.Chmod("/tmp", 0o1777); err != nil {
			return opErr("chmod /tmp", err)
		}
	}
	if err := ensureDir("/run", 0o755, 0, 0); err != nil {
		return err
	}
	for _, d := range m.Dirs {
		k.keep(d)
		if err := ensureDir(d, 0o755, m.UID, m.GID); err != nil {
			return err
		}
	}
	return nil
}

// ensureDir makes a directory and its parents where they are missing. Only
// what it makes gets the mode and the owner.
func ensureDir(path string, mode, uid, gid uint32) error {
	if path == "/" || isDir(path) {
		return nil
	}
	at := len(path) - 1
	for at > 0 && path[at] != '/' {
		at--
	}
	if at > 0 {
		if err := ensureDir(path[:at], mode, uid, gid); err != nil {
			return err
		}
	}
	if err := syscall.Mkdir(path, mode); err != nil {
		if err == syscall.EEXIST && (path[len(path)-1] == '/' || isDir(path)) {
			return nil
		}
		return opErr("make "+path, err)
	}
	if err := syscall.Lchown(path, int(uid), int(gid)); err != nil {
		return opErr("chown "+path, err)
	}
	return nil
}

// putFile replaces whatever is at path, a symlink too, by a file.
func putFile(path string, data []byte) error {
	at := len(path) - 1
	for at > 0 && path[at] != '/' {
		at--
	}
	if at > 0 {
		if err := ensureDir(path[:at], 0o755, 0, 0); err != nil {
			return err
		}
	}
	if err := unix.Unlink(path); err != nil && err != syscall.ENOENT {
		return opErr("replace "+path, err)
	}
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return opErr("write "+path, err)
	}
	err = writeAll(fd, data)
	if e := syscall.Close(fd); err == nil {
		err = e
	}
	if err != nil {
		return opErr("write "+path, err)
	}
	return nil
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := syscall.Write(fd, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// dropCapabilities takes CAP_SYS_ADMIN and CAP_SETPCAP from every set of
// every thread, so that no child can get them back, as root neither.
func dropCapabilities() error {
	const drop = 1<<unix.CAP_SETPCAP | 1<<unix.CAP_SYS_ADMIN
	for _, c := range []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP} { // dropping needs the latter
		if _, _, e := syscall.AllThreadsSyscall(syscall.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); e != 0 {
			return opErr("drop a capability", e)
		}
	}
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return opErr("read the capabilities", err)
	}
	d[0].Effective &^= drop
	d[0].Permitted &^= drop
	d[0].Inheritable &^= drop
	h.Pid = 0
	if _, _, e := syscall.AllThreadsSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&d[0])), 0); e != 0 {
		return opErr("set the capabilities", e)
	}
	return nil
}
