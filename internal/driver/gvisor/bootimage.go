package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// bootLayout is part of the boot image's name; it changes with what is in it.
const bootLayout = "1"

// bootDirs are the empty directories of a bare machine.
func bootDirs() []string {
	dirs := []string{"proc", "sys", "dev", "tmp", "run", driver.UpperDir, driver.NewRootDir}
	for i := range driver.MaxLayers {
		dirs = append(dirs, driver.LayerDir(i))
	}
	return dirs
}

// makeBootImage makes the EROFS image that every machine boots from, unless
// it is there: it holds the agent and empty directories.
func makeBootImage(dir string, agent []byte) (string, error) {
	sum := sha256.Sum256(append([]byte(bootLayout), agent...))
	name := filepath.Join(dir, hex.EncodeToString(sum[:])+".erofs")
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tree, err := os.MkdirTemp(dir, "tree")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tree)
	for _, d := range bootDirs() {
		if err := os.Mkdir(filepath.Join(tree, d), 0o755); err != nil {
			return "", err
		}
	}
	if err := os.WriteFile(filepath.Join(tree, "agent"), agent, 0o755); err != nil {
		return "", err
	}
	if out, err := exec.Command("mkfs.erofs", "-E", "noinline_data", name+".new", tree).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mkfs.erofs: %w: %s", err, out)
	}
	return name, os.Rename(name+".new", name)
}
