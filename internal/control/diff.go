package control

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/snapshot"
)

// DiffSnapshots tells what is different in the snapshot with from the snapshot
// id.
func (p *Project) DiffSnapshots(ctx context.Context, id, with string) (*api.SnapshotDiff, error) {
	a, err := p.wholeDisk(ctx, id)
	if err != nil {
		return nil, err
	}
	b, err := p.wholeDisk(ctx, with)
	if err != nil {
		return nil, err
	}
	out := &api.SnapshotDiff{Changes: []api.SnapshotChange{}}
	err = p.c.node.DiffLayers(ctx, a, b, func(c snapshot.Change) error {
		if len(out.Changes) == api.MaxSnapshotChanges {
			out.Omitted++
			return nil
		}
		out.Changes = append(out.Changes, api.SnapshotChange{Kind: string(c.Kind), Path: strings.ToValidUTF8(c.Path, "\uFFFD"), Dir: c.Dir})
		return nil
	})
	if errors.Is(err, snapshot.ErrNotFound) {
		return nil, api.Errorf(api.CodeConflict, "part of snapshot %s or %s is missing on the server's disk: %v", id, with, err)
	}
	if err != nil {
		return nil, internal("compare snapshots", err)
	}
	return out, nil
}

// wholeDisk are the layers of a snapshot, those of its image included.
func (p *Project) wholeDisk(ctx context.Context, id string) ([]image.Layer, error) {
	sn, err := p.usableSnapshot(ctx, id)
	if err != nil {
		return nil, err
	}
	img, err := p.c.pinnedImage(ctx, sn.Image)
	if err != nil {
		return nil, err
	}
	return slices.Concat(img.Layers, stored(sn.Layers)), nil
}
