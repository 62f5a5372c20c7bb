package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/image"
)

// DiskUse implements server.Control.
func (c serverControl) DiskUse(ctx context.Context) (api.DiskUse, error) {
	d := c.d
	images, err := d.images.DiskUse()
	if err != nil {
		return api.DiskUse{}, err
	}
	snapshots, drives, err := d.control.LayersNeeded(ctx)
	if err != nil {
		return api.DiskUse{}, err
	}
	logs, scratch, err := d.control.LocalUse(ctx)
	if err != nil {
		return api.DiskUse{}, err
	}
	out := api.DiskUse{Kinds: []api.DiskKind{{Kind: api.DiskImages, Count: images.Images, Bytes: images.Bytes}}}
	for _, part := range []struct {
		kind string
		has  func(digest string) bool
	}{
		{api.DiskSnapshots, func(digest string) bool { return snapshots[digest] }},
		{api.DiskDrives, func(digest string) bool { return drives[digest] }},
		{api.DiskLayers, func(digest string) bool { return !snapshots[digest] && !drives[digest] }},
	} {
		u, err := d.snapshots.DiskUse(part.has)
		if err != nil {
			return out, err
		}
		out.Kinds = append(out.Kinds, api.DiskKind{Kind: part.kind, Count: u.Layers, Bytes: u.Bytes})
	}
	out.Kinds = append(out.Kinds, logs, scratch, d.databaseUse())
	var st unix.Statfs_t
	if err := unix.Statfs(d.cfg.DataDir, &st); err != nil {
		return out, fmt.Errorf("measure the file system of %s: %w", d.cfg.DataDir, err)
	}
	out.FreeBytes = int64(st.Bavail) * st.Bsize
	return out, nil
}

func (d *Daemon) databaseUse() api.DiskKind {
	out := api.DiskKind{Kind: api.DiskDatabase}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if fi, err := os.Stat(filepath.Join(d.cfg.DataDir, StateFile+suffix)); err == nil {
			out.Count++
			out.Bytes += fi.Size()
		}
	}
	return out
}

// Prune implements server.Control.
func (c serverControl) Prune(ctx context.Context, req api.PruneRequest) (api.PruneResponse, error) {
	out := api.PruneResponse{Removed: []api.Pruned{}}
	removed, err := c.d.control.Prune(ctx, req.DryRun)
	out.Removed = append(out.Removed, removed...)
	if err == nil && req.Images {
		removed, err = c.d.pruneImages(req.DryRun)
		out.Removed = append(out.Removed, removed...)
	}
	for _, r := range out.Removed {
		out.FreedBytes += r.Bytes
	}
	return out, err
}

// pruneImages removes the images that nothing was made from, but for the
// default one, which every server has.
func (d *Daemon) pruneImages(dryRun bool) (out []api.Pruned, err error) {
	list, err := d.images.List()
	if err != nil {
		return nil, err
	}
	for _, img := range list {
		if img.Reference == image.DefaultReference || d.imageInUse(img.Digest) {
			continue
		}
		if !dryRun {
			err := d.images.Remove(img.Digest)
			if errors.Is(err, image.ErrInUse) || errors.Is(err, image.ErrNotFound) {
				continue // something was made from it just now, or it is gone
			}
			if err != nil {
				return out, err
			}
		}
		p := api.Pruned{Kind: api.DiskImages, Name: img.Reference}
		for _, l := range img.Layers {
			p.Bytes += l.Size - l.Holes
		}
		out = append(out, p)
	}
	return out, nil
}
