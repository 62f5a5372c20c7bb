package control

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/image"
)

// fakeDisks are the layers of a fakeNode. Each holds all files up to it, but
// it cannot be used without those below it.
type fakeDisks struct {
	mu     sync.Mutex
	made   int
	layers map[string]fakeDisk // by digest
	recent map[string]bool     // made just now: not pruned, as a node promises
	merges int
}

type fakeDisk struct {
	files map[string]string
	dirs  map[string]bool
	size  int64
}

func (d *fakeDisks) add(disk fakeDisk) image.Layer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.layers == nil {
		d.layers, d.recent = map[string]fakeDisk{}, map[string]bool{}
	}
	d.made++
	digest := fmt.Sprintf("sha256:%d", d.made)
	d.layers[digest], d.recent[digest] = disk, true
	return image.Layer{Digest: digest, Size: disk.size}
}

// top returns what a stack of layers holds.
func (d *fakeDisks) top(layers []image.Layer) (fakeDisk, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var disk fakeDisk
	for _, l := range layers {
		var ok bool
		if disk, ok = d.layers[l.Digest]; !ok {
			return disk, fmt.Errorf("layer %s is gone", l.Digest)
		}
	}
	return disk, nil
}

func (d *fakeDisks) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.layers)
}

// age takes away the protection of what was made just now.
func (d *fakeDisks) age() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.recent)
}

func (n *fakeNode) loadDisk(m *fakeMachine) error {
	if k := len(m.spec.Image.Layers) + len(m.spec.Layers); k > driver.MaxLayers {
		return fmt.Errorf("%d layers are too many", k)
	}
	disk, err := n.disks.top(m.spec.Layers)
	if err != nil {
		return err
	}
	maps.Copy(m.files, disk.files)
	maps.Copy(m.dirs, disk.dirs)
	return nil
}

func (n *fakeNode) MergeLayers(_ context.Context, _, layers []image.Layer) (image.Layer, error) {
	disk, err := n.disks.top(layers)
	if err != nil {
		return image.Layer{}, err
	}
	disk.size = 0
	for _, l := range layers {
		disk.size += l.Size
	}
	n.disks.mu.Lock()
	n.disks.merges++
	n.disks.mu.Unlock()
	return n.disks.add(disk), nil
}

func (n *fakeNode) PruneLayers(_ context.Context, keep func(string) bool) (freed int64, err error) {
	n.disks.mu.Lock()
	defer n.disks.mu.Unlock()
	for digest, disk := range n.disks.layers {
		if !keep(digest) && !n.disks.recent[digest] {
			delete(n.disks.layers, digest)
			freed += disk.size
		}
	}
	return freed, nil
}

// SaveDisk makes a layer of all files where they are not as they were.
func (m *fakeMachine) SaveDisk(ctx context.Context, goOn bool) (image.Layer, bool, error) {
	if m.onSave != nil {
		if err := m.onSave(); err != nil {
			return image.Layer{}, false, err
		}
	}
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return image.Layer{}, false, driver.ErrStopped
	}
	disk := fakeDisk{files: maps.Clone(m.files), dirs: maps.Clone(m.dirs), size: int64(len(m.files))}
	m.mu.Unlock()
	if !goOn {
		if err := m.Stop(ctx); err != nil {
			return image.Layer{}, false, err
		}
	}
	was, err := m.n.disks.top(m.spec.Layers)
	if err != nil {
		return image.Layer{}, false, err
	}
	if maps.Equal(was.files, disk.files) {
		return image.Layer{}, false, nil
	}
	return m.n.disks.add(disk), true, nil
}
