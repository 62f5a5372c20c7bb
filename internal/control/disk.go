package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/node"
)

// Prune removes what nothing needs: layers, and logs of sessions that are not
// known. Snapshots that have expired are gone by themselves. What runs is not
// touched. A dry run only tells.
func (c *Control) Prune(ctx context.Context, dryRun bool) ([]api.Pruned, error) {
	c.layersMu.Lock()
	defer c.layersMu.Unlock()
	keep, err := c.layersInUse(ctx)
	if err != nil {
		return nil, err
	}
	var out []api.Pruned
	layers, err := c.node.PruneLayers(ctx, func(digest string) bool { return keep[digest] }, dryRun)
	for _, l := range layers {
		out = append(out, api.Pruned{Kind: api.DiskLayers, Name: l.Digest, Bytes: l.Bytes})
	}
	if err != nil {
		return out, err
	}
	logs, err := c.sweepLogs(ctx, dryRun)
	return append(out, logs...), err
}

// sweepLogs removes directories of sessions that are not known. A session is
// known before it has a directory.
func (c *Control) sweepLogs(ctx context.Context, dryRun bool) ([]api.Pruned, error) {
	entries, err := os.ReadDir(c.cfg.LogDir)
	if err != nil {
		return nil, fmt.Errorf("read log directory: %w", err)
	}
	ids, err := c.store.SessionIDs(ctx, "")
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(ids))
	for _, id := range ids {
		known[id] = true
	}
	var out []api.Pruned
	for _, e := range entries {
		if known[e.Name()] {
			continue
		}
		_, bytes, err := treeUse(c.sessionDir(e.Name()))
		if err == nil && !dryRun {
			err = os.RemoveAll(c.sessionDir(e.Name()))
		}
		if err != nil {
			return out, fmt.Errorf("remove log directory %s: %w", e.Name(), err)
		}
		out = append(out, api.Pruned{Kind: api.DiskLogs, Name: e.Name(), Bytes: bytes})
	}
	return out, nil
}

// LayersNeeded tells the layers of snapshots and live sessions, and of drives.
func (c *Control) LayersNeeded(ctx context.Context) (snapshots, drives map[string]bool, err error) {
	c.layersMu.RLock()
	defer c.layersMu.RUnlock()
	all, err := c.layersInUse(ctx)
	if err != nil {
		return nil, nil, err
	}
	if drives, err = c.store.DriveLayers(ctx); err != nil {
		return nil, nil, err
	}
	for digest := range drives {
		delete(all, digest)
	}
	return all, drives, nil
}

// LocalUse measures logs and the writable layers of what runs.
func (c *Control) LocalUse(ctx context.Context) (logs, scratch api.DiskKind, err error) {
	logs, scratch = api.DiskKind{Kind: api.DiskLogs}, api.DiskKind{Kind: api.DiskScratch}
	if logs.Count, logs.Bytes, err = treeUse(c.cfg.LogDir); err != nil {
		return logs, scratch, fmt.Errorf("measure logs: %w", err)
	}
	var machines []node.Machine
	c.mu.Lock()
	live := make([]*session, 0, len(c.live))
	for _, s := range c.live {
		live = append(live, s)
	}
	c.mu.Unlock()
	for _, s := range live {
		if m := s.liveMachine(); m != nil {
			machines = append(machines, m)
		}
	}
	for _, m := range machines {
		if u, err := m.Usage(ctx); err == nil { // else it has ended meanwhile
			scratch.Count++
			scratch.Bytes += u.DiskBytes
		}
	}
	return logs, scratch, nil
}

// treeUse counts the files below a directory and what they take up on disk.
// Others may remove them meanwhile.
func treeUse(dir string) (files int, bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		files++
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			bytes += st.Blocks * 512
		}
		return nil
	})
	return files, bytes, err
}
