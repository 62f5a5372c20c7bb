package node

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/snapshot"
)

var errNoSnapshots = errors.New("this node keeps no snapshots")

// SaveDisk implements Machine.
func (m *machine) SaveDisk(ctx context.Context, what Save) (Saved, error) {
	if m.snaps == nil {
		return Saved{}, errNoSnapshots
	}
	start := time.Now()
	var frozen time.Duration
	var out Saved
	err := m.Machine.SaveDisk(ctx, what.GoOn, func(disks []driver.Disk) (err error) {
		frozen = time.Since(start)
		out, err = m.save(ctx, disks, what)
		return err
	})
	if err != nil {
		return Saved{}, fmt.Errorf("save the disk of machine %s: %w", m.ID(), err)
	}
	if !what.GoOn {
		<-m.done
	}
	m.log.Debug("disk saved", "machine", m.ID(), "layer", out.Layer, "drives", len(out.Drives), "frozen", frozen, "took", time.Since(start))
	return out, nil
}

// save makes layers of the disks of one moment: the root's and the drives'.
func (m *machine) save(ctx context.Context, disks []driver.Disk, what Save) (out Saved, err error) {
	if len(disks) != 1+len(m.root.drives) {
		return out, fmt.Errorf("%d disks instead of %d", len(disks), 1+len(m.root.drives))
	}
	one := func(d driver.Disk, lowers []image.Layer, assembled map[string][]byte) (*image.Layer, error) {
		l, ok, err := m.snaps.Save(ctx, snapshot.Source{
			Disk: d, Lowers: lowers, Assembled: assembled, UseReserve: what.UseReserve,
			Skip: func(p string) bool { return guest.IsTemp(path.Base(p)) },
		})
		d.Done() // also where there is no layer
		if err != nil || !ok {
			return nil, err
		}
		return &l, nil
	}
	if what.DrivesOnly {
		disks[0].Done()
	} else if out.Layer, err = one(disks[0], m.root.all(), m.madeByUs()); err != nil {
		return out, err
	}
	out.Drives = make([]*image.Layer, len(m.root.drives))
	for i, d := range m.root.drives {
		if d.ReadOnly {
			disks[1+i].Done()
		} else if out.Drives[i], err = one(disks[1+i], d.Layers, nil); err != nil {
			return out, fmt.Errorf("drive at %s: %w", d.Path, err)
		}
	}
	return out, nil
}

func (n *node) MergeLayers(ctx context.Context, base, layers []image.Layer) (image.Layer, error) {
	if n.cfg.Snapshots == nil {
		return image.Layer{}, errNoSnapshots
	}
	base, err := n.located(base)
	if err != nil {
		return image.Layer{}, err
	}
	if layers, err = n.located(layers); err != nil {
		return image.Layer{}, err
	}
	return n.cfg.Snapshots.Merge(ctx, base, layers)
}

func (n *node) DiffLayers(ctx context.Context, a, b []image.Layer, yield func(snapshot.Change) error) (err error) {
	if n.cfg.Snapshots == nil {
		return errNoSnapshots
	}
	if a, err = n.located(a); err != nil {
		return err
	}
	if b, err = n.located(b); err != nil {
		return err
	}
	return n.cfg.Snapshots.Diff(ctx, a, b, yield)
}

// located finds the files of layers that are known by their digests alone.
func (n *node) located(layers []image.Layer) ([]image.Layer, error) {
	out := slices.Clone(layers)
	for i, l := range out {
		if l.Path != "" {
			continue
		}
		if n.cfg.Snapshots == nil {
			return nil, errNoSnapshots
		}
		var err error
		if out[i], err = n.cfg.Snapshots.Load(l.Digest); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (n *node) PruneLayers(ctx context.Context, keep func(digest string) bool, dryRun bool) ([]snapshot.Removed, error) {
	if n.cfg.Snapshots == nil {
		return nil, errNoSnapshots
	}
	used := map[string]bool{}
	n.mu.Lock()
	for m := range n.machines {
		for _, l := range m.root.layers {
			used[l.Digest] = true
		}
		for _, d := range m.root.drives {
			for _, l := range d.Layers {
				used[l.Digest] = true
			}
		}
	}
	n.mu.Unlock()
	return n.cfg.Snapshots.Prune(ctx, func(digest string) bool { return keep(digest) || used[digest] }, dryRun)
}
