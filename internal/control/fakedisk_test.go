package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/snapshot"
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
	for _, d := range m.spec.Drives {
		if disk, err = n.disks.top(d.Layers); err != nil {
			return err
		}
		for p, content := range disk.files {
			m.files[d.Path+"/"+p] = content
		}
	}
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

// DiffLayers knows files that were added.
func (n *fakeNode) DiffLayers(_ context.Context, a, b []image.Layer, yield func(snapshot.Change) error) error {
	old, err := n.disks.top(a)
	if err != nil {
		return fmt.Errorf("%w: %w", snapshot.ErrNotFound, err)
	}
	disk, err := n.disks.top(b)
	if err != nil {
		return fmt.Errorf("%w: %w", snapshot.ErrNotFound, err)
	}
	for _, p := range slices.Sorted(maps.Keys(disk.files)) {
		if _, ok := old.files[p]; ok {
			continue
		}
		if err := yield(snapshot.Change{Kind: snapshot.Added, Path: p}); err != nil {
			return err
		}
	}
	return nil
}

func (n *fakeNode) PruneLayers(_ context.Context, keep func(string) bool, dryRun bool) (removed []snapshot.Removed, err error) {
	n.disks.mu.Lock()
	defer n.disks.mu.Unlock()
	for digest, disk := range n.disks.layers {
		if !keep(digest) && !n.disks.recent[digest] {
			if !dryRun {
				delete(n.disks.layers, digest)
			}
			removed = append(removed, snapshot.Removed{Digest: digest, Bytes: disk.size})
		}
	}
	return removed, nil
}

// SaveDisk makes a layer of all files where they are not as they were, and one
// of those of each drive.
func (m *fakeMachine) SaveDisk(ctx context.Context, what node.Save) (node.Saved, error) {
	if m.onSave != nil {
		if err := m.onSave(); err != nil {
			return node.Saved{}, err
		}
	}
	if m.onSaved != nil {
		m.onSaved(what)
	}
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return node.Saved{}, driver.ErrStopped
	}
	root := maps.Clone(m.files)
	dirs := maps.Clone(m.dirs)
	m.mu.Unlock()
	if !what.GoOn {
		if err := m.Stop(ctx); err != nil {
			return node.Saved{}, err
		}
	}
	out := node.Saved{Drives: make([]*image.Layer, len(m.spec.Drives))}
	for i, d := range m.spec.Drives {
		files := map[string]string{}
		for p, content := range root {
			if rest, ok := strings.CutPrefix(p, d.Path+"/"); ok {
				files[rest] = content
				delete(root, p)
			}
		}
		if d.ReadOnly {
			continue
		}
		var err error
		if out.Drives[i], err = m.saveLayer(d.Layers, fakeDisk{files: files, size: int64(len(files))}); err != nil {
			return node.Saved{}, err
		}
	}
	if what.DrivesOnly {
		return out, nil
	}
	var err error
	out.Layer, err = m.saveLayer(m.spec.Layers, fakeDisk{files: root, dirs: dirs, size: int64(len(root))})
	return out, err
}

func (m *fakeMachine) saveLayer(lowers []image.Layer, disk fakeDisk) (*image.Layer, error) {
	was, err := m.n.disks.top(lowers)
	if err != nil || maps.Equal(was.files, disk.files) {
		return nil, err
	}
	l := m.n.disks.add(disk)
	return &l, nil
}
