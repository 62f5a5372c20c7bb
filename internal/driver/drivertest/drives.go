package drivertest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// drives: each has its layers, and a writable layer of its own size that is
// saved with the root's.
func drives(t *testing.T, b *bench) {
	m := b.start(t, small("drives"))
	base, top := image(t, "base", "/f", "from the base"), image(t, "top", "/g", "from the top")
	two := []driver.Drive{{Bytes: 1 << 20, Layers: []string{base, top}}, {Bytes: 2 << 20}}
	if err := m.MountDrives(b.ctx, two); err == nil {
		t.Error("drives come before the layers")
	}
	if err := m.MountLayers(b.ctx, []string{base}); err != nil {
		t.Fatal(err)
	}
	if err := m.MountDrives(b.ctx, make([]driver.Drive, driver.MaxDrives+1)); err == nil {
		t.Error("there are too many drives")
	}
	if err := m.MountDrives(b.ctx, two); err != nil {
		t.Fatal(err)
	}
	if err := m.MountDrives(b.ctx, two); err == nil {
		t.Error("drives are mounted twice")
	}
	if got := b.sh(t, m, "cat", driver.DriveLayerDir(0, 1)+"/g"); got != "from the top" {
		t.Errorf("layer 1 of drive 0: %q", got)
	}
	for i, d := range two {
		if got := strings.TrimSpace(b.sh(t, m, "statfs", driver.DriveDir(i))); got != strconv.FormatInt(d.Bytes, 10) {
			t.Errorf("drive %d takes %s bytes instead of %d", i, got, d.Bytes)
		}
		b.sh(t, m, "mkdir", driver.DriveDir(i)+"/"+driver.UpperTree)
		b.sh(t, m, "write", driver.DriveDir(i)+"/"+driver.UpperTree+"/own", driver.DriveDir(i))
	}
	b.sh(t, m, "tree", upper)
	err := m.SaveDisk(b.ctx, true, func(disks []driver.Disk) error {
		if len(disks) != 3 {
			t.Fatalf("%d disks", len(disks))
		}
		checkTree(t, entries(t, disks[0]))
		for i := range two {
			got := entries(t, disks[1+i])
			e, ok := got["own"]
			content := make([]byte, e.Size)
			if ok {
				if _, err := e.Content.ReadAt(content, 0); err != nil {
					t.Error(err)
				}
			}
			if len(got) != 2 || string(content) != driver.DriveDir(i) {
				t.Errorf("drive %d holds %v, %q", i, got, content)
			}
			disks[1+i].Done()
		}
		disks[0].Done()
		b.sh(t, m, "true") // all are done: it goes on
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
