package main

import (
	"syscall"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// Where a driver puts the parts of drives, as package driver says.
const (
	emptyDir  = "/empty"
	maxDrives = 4
)

func driveDir(i int) string { return "/d" + itoa(i) }

func driveLayerDir(i, j int) string { return driveDir(i) + layerDir(j)[1:] }

func validDrives(drives []wire.Drive) bool {
	for i := range drives {
		if drives[i].Layers > maxLayers {
			return false
		}
	}
	return len(drives) <= maxDrives
}

// mountDrive mounts a drive in the new root; its parts are still in the old
// one. A path that leads over symbolic links leads to where those of the root
// lead: it is the guest's own.
func mountDrive(i int, d *wire.Drive, m *wire.Assembly) error {
	upper := oldRoot + driveDir(i)
	for _, dir := range []string{upper + "/u", upper + "/w"} {
		if err := syscall.Mkdir(dir, 0o755); err != nil {
			return opErr("make "+dir, err)
		}
	}
	// The root of an overlay has the attributes of the writable layer's.
	top := oldRoot + emptyDir
	lower := top
	if d.Layers > 0 {
		top = oldRoot + driveLayerDir(i, int(d.Layers)-1)
		lower = top
		for j := int(d.Layers) - 2; j >= 0; j-- {
			lower += ":" + oldRoot + driveLayerDir(i, j)
		}
	}
	root := keptDir{path: d.Path}
	if err := syscall.Lstat(top, &root.st); err != nil {
		return opErr("stat the topmost layer of a drive", err)
	}
	if err := mountOverlay(d.Path, lower, upper); err != nil {
		return err
	}
	if d.Layers == 0 {
		if err := syscall.Lchown(d.Path, int(m.UID), int(m.GID)); err != nil {
			return opErr("chown "+d.Path, err)
		}
	} else if err := root.restoreAll(); err != nil {
		return err
	}
	k := newKeeper()
	if err := restoreExtras(&d.Extras, k); err != nil {
		return err
	}
	if err := k.restore(); err != nil {
		return err
	}
	if d.ReadOnly {
		if err := syscall.Mount("", d.Path, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			return opErr("make "+d.Path+" read-only", err)
		}
	}
	return nil
}
