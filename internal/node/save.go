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
func (m *machine) SaveDisk(ctx context.Context, goOn bool) (l image.Layer, ok bool, err error) {
	if m.snaps == nil {
		return image.Layer{}, false, errNoSnapshots
	}
	start := time.Now()
	var frozen time.Duration
	err = m.Machine.SaveDisk(ctx, goOn, func(d driver.Disk) (err error) {
		frozen = time.Since(start)
		l, ok, err = m.snaps.Save(ctx, snapshot.Source{
			Disk: d, Lowers: m.root.all(), Assembled: m.made,
			Skip: func(p string) bool { return guest.IsTemp(path.Base(p)) },
		})
		return err
	})
	if err != nil {
		return image.Layer{}, false, fmt.Errorf("save the disk of machine %s: %w", m.ID(), err)
	}
	if !goOn {
		<-m.done
	}
	m.log.Debug("disk saved", "machine", m.ID(), "layer", l.Digest, "bytes", l.Size, "frozen", frozen, "took", time.Since(start))
	return l, ok, nil
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

func (n *node) PruneLayers(ctx context.Context, keep func(digest string) bool) (int64, error) {
	if n.cfg.Snapshots == nil {
		return 0, errNoSnapshots
	}
	used := map[string]bool{}
	n.mu.Lock()
	for m := range n.machines {
		for _, l := range m.root.layers {
			used[l.Digest] = true
		}
	}
	n.mu.Unlock()
	return n.cfg.Snapshots.Prune(ctx, func(digest string) bool { return keep(digest) || used[digest] })
}
