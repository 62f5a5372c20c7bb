package control

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/snapshot"
	"github.com/glovebox-dev/glovebox/internal/store"
)

const (
	// maxChain is how many layers a snapshot may have before they are merged
	// in the background.
	maxChain = 5
	// mergedChain is how many are left after that, at most.
	mergedChain = 3
)

// spawn runs f in the background, unless the server shuts down; c.ctx then
// ends.
func (c *Control) spawn(f func(ctx context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing {
		c.wg.Go(func() { f(c.ctx) })
	}
}

// afterEnd does what is due after a session has ended: its snapshot may have
// made others obsolete, its chain of layers too long, or be the next to expire.
func (c *Control) afterEnd(kept *store.Kept, states []store.DriveState) {
	c.expire()
	if len(states) > 0 {
		c.mergeDrives(states)
		c.prune() // what was kept of them while the session ran
	}
	if kept == nil {
		return
	}
	if kept.Retention != nil {
		c.prune()
	}
	if sn := kept.Snapshot; len(sn.Layers) > maxChain {
		c.spawn(func(ctx context.Context) {
			if err := c.merge(ctx, sn.Project, sn.ID); err != nil && ctx.Err() == nil {
				c.log.Error("merge layers", "snapshot", sn.ID, "err", err)
			}
		})
	}
}

// merge makes one layer of the topmost ones of a snapshot, where it has more
// than maxChain. Each is merged with those of its own size or smaller, so that
// a large one at the bottom is not copied again and again.
func (c *Control) merge(ctx context.Context, project, id string) error {
	c.mergeMu.Lock()
	defer c.mergeMu.Unlock()
	sn, err := c.store.Snapshot(ctx, project, id)
	if err != nil {
		return err
	}
	if len(sn.Layers) <= maxChain {
		return nil // another call did it
	}
	img, err := c.pinnedImage(ctx, sn.Image)
	if err != nil {
		return err
	}
	start, n := c.clock.Now(), topRun(sn.Layers)
	all := stored(sn.Layers)
	merged, err := c.node.MergeLayers(ctx, slices.Concat(img.Layers, all[:n]), all[n:])
	if err != nil {
		return err
	}
	all = append(all[:n:n], merged)
	err = c.store.ReplaceLayers(ctx, id, sn.Layers, recorded(all))
	c.prune()
	if errors.Is(err, store.ErrNotFound) {
		return nil // it was deleted meanwhile
	}
	c.log.Debug("layers merged", "snapshot", id, "from", len(sn.Layers), "to", len(all), "bytes", merged.Size, "took", c.clock.Now().Sub(start))
	return err
}

// topRun is the index of the lowest layer that is merged with all above it.
func topRun(layers []store.SnapshotLayer) int {
	i := len(layers) - 1
	for size := layers[i].Size; i > 0 && (i >= mergedChain || layers[i-1].Size <= size); i-- {
		size += layers[i-1].Size
	}
	return i
}

// pruneAgain is when layers that nothing needs are looked for a second time:
// a node keeps those that it made just before the first.
const pruneAgain = 15 * time.Minute

// prune removes the layers that nothing needs, in the background.
func (c *Control) prune() {
	c.pruneNow()
	c.timersMu.Lock()
	defer c.timersMu.Unlock()
	if c.again == nil && c.ctx.Err() == nil {
		c.again = c.clock.AfterFunc(pruneAgain, func() {
			c.timersMu.Lock()
			c.again = nil
			c.timersMu.Unlock()
			c.pruneNow()
		})
	}
}

func (c *Control) pruneNow() {
	if !c.pruning.CompareAndSwap(false, true) {
		return // the run that waits sees it all
	}
	c.spawn(func(ctx context.Context) {
		c.layersMu.Lock()
		defer c.layersMu.Unlock()
		c.pruning.Store(false)
		keep, err := c.layersInUse(ctx)
		if err == nil {
			var removed []snapshot.Removed
			if removed, err = c.node.PruneLayers(ctx, func(digest string) bool { return keep[digest] }, false); len(removed) > 0 {
				c.log.Info("removed layers that nothing needs", "layers", len(removed))
			}
		}
		if err != nil && ctx.Err() == nil {
			c.log.Error("remove layers that nothing needs", "err", err)
		}
	})
}

// layersInUse are those of all snapshots and live sessions. Held: layersMu.
func (c *Control) layersInUse(ctx context.Context) (map[string]bool, error) {
	used, err := c.store.LayersInUse(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.live {
		for _, l := range s.layers {
			used[l.Digest] = true
		}
		for _, a := range s.drives {
			for _, l := range a.layers {
				used[l.Digest] = true
			}
		}
	}
	return used, nil
}

// expiryPause is the longest wait until it is looked again for snapshots
// whose time has come.
const expiryPause = 24 * time.Hour

// expire deletes the snapshots whose time has come, and comes back when that
// of the next one has.
func (c *Control) expire() {
	c.spawn(func(ctx context.Context) {
		c.expiryMu.Lock()
		defer c.expiryMu.Unlock()
		now := c.now()
		n, next, err := c.store.ExpireSnapshots(ctx, now)
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			c.log.Error("delete expired snapshots", "err", err)
			next = now + time.Minute.Milliseconds()
		}
		if n > 0 {
			c.log.Info("deleted expired snapshots", "snapshots", n)
			c.prune()
		}
		c.timersMu.Lock()
		defer c.timersMu.Unlock()
		if c.expiry != nil {
			c.expiry.Stop()
			c.expiry = nil
		}
		if next > 0 && ctx.Err() == nil {
			wait := min(time.Duration(next-now), time.Duration(expiryPause.Milliseconds())) * time.Millisecond
			c.expiry = c.clock.AfterFunc(wait, c.expire)
		}
	})
}
