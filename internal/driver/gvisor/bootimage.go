package gvisor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/layer"
)

// bootLayout is part of the boot image's name, and to be changed with what
// is in the image.
const bootLayout = "3"

// bootDirs are the empty directories of a bare machine.
func bootDirs() []string {
	dirs := []string{"/proc", "/sys", "/dev", "/tmp", "/run", driver.UpperDir, driver.NewRootDir, driver.EmptyDir}
	for i := range driver.MaxLayers {
		dirs = append(dirs, driver.LayerDir(i))
	}
	for i := range driver.MaxDrives {
		dirs = append(dirs, driver.DriveDir(i))
		for j := range driver.MaxLayers {
			dirs = append(dirs, driver.DriveLayerDir(i, j))
		}
	}
	return dirs
}

// makeBootImage makes the EROFS image that every machine boots from, unless
// it is there: it holds the agent and empty directories. Images of other
// agents are removed; a machine that runs on one keeps it open.
func makeBootImage(ctx context.Context, dir string, agent []byte) (string, error) {
	sum := sha256.Sum256(append([]byte(bootLayout), agent...))
	name := filepath.Join(dir, hex.EncodeToString(sum[:])+".erofs")
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "new")
	if err != nil {
		return "", err
	}
	defer f.Close()
	epoch := time.Unix(0, 0)
	entries := []layer.Entry{{
		Path: "/agent", Mode: unix.S_IFREG | 0o755, MTime: epoch,
		Size: int64(len(agent)), Content: bytes.NewReader(agent),
	}}
	for _, d := range bootDirs() {
		entries = append(entries, layer.Entry{Path: d, Mode: unix.S_IFDIR | 0o755, MTime: epoch})
	}
	if _, err := layer.FromFiles(ctx, f, entries...); err != nil {
		return "", err
	}
	return name, os.Rename(f.Name(), name)
}
