package control

import (
	"context"
	"errors"
	"strings"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// snapshot finds one of the project, deleted or not.
func (p *Project) snapshot(ctx context.Context, id string) (store.Snapshot, error) {
	sn, err := p.c.store.Snapshot(ctx, p.name, id)
	if errors.Is(err, store.ErrNotFound) {
		return sn, api.NotFound("snapshot", id)
	}
	return sn, err
}

// usableSnapshot finds one that can be started from.
func (p *Project) usableSnapshot(ctx context.Context, id string) (store.Snapshot, error) {
	sn, err := p.snapshot(ctx, id)
	if err == nil && p.c.statusOf(sn) != api.SnapshotCreated {
		err = snapshotGone(id)
	}
	return sn, err
}

func snapshotGone(id string) error {
	return api.Errorf(api.CodeSnapshotNotFound, "snapshot %s was deleted or has expired; start from another, or from an image", id)
}

// startsFrom turns an error of the store at the start of a session into what
// a client sees.
func (p *Project) startsFrom(err error, kind, name, snapshot string) error {
	switch {
	case errors.Is(err, store.ErrGone):
		return snapshotGone(snapshot)
	case errors.Is(err, store.ErrNotFound): // deleted meanwhile
		return api.NotFound(kind, name)
	}
	return internal("record session", err)
}

// origin is what a session starts from that starts from a snapshot.
func (p *Project) origin(ctx context.Context, id string) (origin, error) {
	sn, err := p.usableSnapshot(ctx, id)
	if err != nil {
		return origin{}, err
	}
	img, err := p.c.pinnedImage(ctx, sn.Image)
	if err != nil {
		return origin{}, err
	}
	if len(img.Layers)+len(sn.Layers) > driver.MaxLayers {
		// Merging in the background was not fast enough.
		if err := p.c.merge(ctx, p.name, id); err != nil {
			return origin{}, internal("merge the layers of snapshot "+id, err)
		}
	}
	return origin{snapshot: id, image: img, pinned: sn.Image}, nil
}

// imageOrigin is what a session starts from that starts from an image.
func (p *Project) imageOrigin(ctx context.Context, pinned string) (origin, error) {
	img, err := p.c.pinnedImage(ctx, pinned)
	return origin{image: img, pinned: pinned}, err
}

// pinnedImage finds an image that something was made from, as
// "reference@sha256:…".
func (c *Control) pinnedImage(ctx context.Context, pinned string) (image.Image, error) {
	_, digest, _ := strings.Cut(pinned, "@")
	img, err := c.cfg.Images.Resolve(ctx, digest)
	if err != nil {
		if ctx.Err() != nil {
			return img, ctx.Err()
		}
		return img, api.Errorf(api.CodeImageNotReady, "the image %s is no longer on this machine; pull, import or build it again: %v", pinned, err)
	}
	return img, nil
}

// registerFrom makes s live, with the layers of what it starts from and of its
// drives: from now on they are not pruned.
func (p *Project) registerFrom(ctx context.Context, s *session, from origin, mounts map[string]api.Mount) error {
	c := p.c
	if err := c.room("start a sandbox"); err != nil {
		return err
	}
	if err := p.findDrives(ctx, s, mounts); err != nil {
		return err
	}
	c.layersMu.RLock()
	defer c.layersMu.RUnlock()
	if from.snapshot != "" {
		sn, err := c.store.Snapshot(ctx, s.project, from.snapshot)
		if err != nil {
			return internal("find snapshot "+from.snapshot, err)
		}
		s.layers = stored(sn.Layers)
	}
	s.rec.SourceSnapshotID = from.snapshot
	if err := c.register(s); err != nil {
		return err
	}
	if err := p.loadDrives(ctx, s); err != nil {
		s.abandon()
		return err
	}
	return nil
}
