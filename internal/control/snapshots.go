package control

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// statusOf is a snapshot's status: one whose time has come counts as deleted,
// whether that was noticed or not.
func (c *Control) statusOf(sn store.Snapshot) api.SnapshotStatus {
	if sn.Status == api.SnapshotCreated && sn.ExpiresAt > 0 && sn.ExpiresAt <= c.now() && !c.runsFrom(sn.ID) {
		return api.SnapshotDeleted
	}
	return sn.Status
}

// runsFrom tells whether a live session was started from a snapshot.
func (c *Control) runsFrom(id string) bool {
	c.mu.Lock()
	live := make([]*session, 0, len(c.live))
	for _, s := range c.live {
		live = append(live, s)
	}
	c.mu.Unlock()
	return slices.ContainsFunc(live, func(s *session) bool { return s.record().SourceSnapshotID == id })
}

// snapshotView is a snapshot as answers show it.
func (c *Control) snapshotView(sn store.Snapshot) api.Snapshot {
	out := api.Snapshot{
		ID: sn.ID, SourceSessionID: sn.SessionID, Region: sn.Region, Regions: []string{sn.Region}, Status: c.statusOf(sn),
		ExpiresAt: sn.ExpiresAt, CreatedAt: sn.CreatedAt, UpdatedAt: sn.UpdatedAt, LastUsedAt: sn.LastUsedAt,
		CreationMethod: sn.Method, ParentID: sn.ParentID, SandboxName: sn.SandboxName, Image: sn.Image,
	}
	for _, l := range sn.Layers {
		out.SizeBytes += l.Size
	}
	return out
}

func (c *Control) snapshotViews(list []store.Snapshot) []api.Snapshot {
	out := make([]api.Snapshot, 0, len(list))
	for _, sn := range list {
		out = append(out, c.snapshotView(sn))
	}
	return out
}

// GetSnapshot tells of a snapshot, also of one that was deleted.
func (p *Project) GetSnapshot(ctx context.Context, id string) (*api.Snapshot, error) {
	sn, err := p.snapshot(ctx, id)
	if err != nil {
		return nil, err
	}
	view := p.c.snapshotView(sn)
	return &view, nil
}

// DeleteSnapshot makes a snapshot unusable. What was started from it, and the
// snapshots that were made of that, stay as they are.
func (p *Project) DeleteSnapshot(ctx context.Context, id string) (*api.Snapshot, error) {
	sn, err := p.c.store.DeleteSnapshot(ctx, p.name, id, p.c.now())
	if errors.Is(err, store.ErrNotFound) {
		return nil, api.NotFound("snapshot", id)
	}
	if err != nil {
		return nil, err
	}
	p.c.prune()
	view := p.c.snapshotView(sn)
	return &view, nil
}

// ListSnapshots returns a page, deleted ones included.
func (p *Project) ListSnapshots(ctx context.Context, q api.ListSnapshotsQuery) (*api.SnapshotsPage, error) {
	list, next, err := p.c.store.ListSnapshots(ctx, p.name, q)
	if err != nil {
		return nil, listError(err)
	}
	return &api.SnapshotsPage{Snapshots: p.c.snapshotViews(list), Pagination: pagination(len(list), next)}, nil
}

// SnapshotTree walks from a snapshot, which the answer has as its anchor, to
// its ancestors or, along the latest child each, to its descendants. The
// cursor of the next page is the snapshot to walk on from.
func (p *Project) SnapshotTree(ctx context.Context, q api.SnapshotTreeQuery) (*api.SnapshotTree, error) {
	at, err := p.snapshot(ctx, q.SnapshotID)
	if err != nil {
		return nil, err
	}
	anchor, err := p.treeNode(ctx, at)
	if err != nil {
		return nil, err
	}
	out := &api.SnapshotTree{Snapshots: []api.SnapshotNode{}, Anchor: &anchor}
	last := at.ID
	for {
		var ok bool
		if at, ok, err = p.treeStep(ctx, at, q.SortOrder); err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if len(out.Snapshots) == q.Limit {
			out.Pagination.Next = &last
			break
		}
		n, err := p.treeNode(ctx, at)
		if err != nil {
			return nil, err
		}
		out.Snapshots = append(out.Snapshots, n)
		last = at.ID
	}
	out.Pagination.Count = len(out.Snapshots)
	return out, nil
}

// treeStep goes one step up (SortDesc) or down.
func (p *Project) treeStep(ctx context.Context, at store.Snapshot, order string) (next store.Snapshot, ok bool, err error) {
	if order == api.SortDesc {
		if at.ParentID == "" {
			return next, false, nil
		}
		next, err = p.c.store.Snapshot(ctx, p.name, at.ParentID)
		if errors.Is(err, store.ErrNotFound) {
			return next, false, nil
		}
		return next, err == nil, err
	}
	children, err := p.c.store.ChildSnapshots(ctx, p.name, at.ID)
	if err != nil || len(children) == 0 {
		return next, false, err
	}
	return children[len(children)-1], true, nil
}

func (p *Project) treeNode(ctx context.Context, sn store.Snapshot) (api.SnapshotNode, error) {
	n := api.SnapshotNode{Snapshot: p.c.snapshotView(sn), Siblings: []api.Snapshot{}}
	if sn.ParentID != "" {
		siblings, err := p.c.store.ChildSnapshots(ctx, p.name, sn.ParentID)
		if err != nil {
			return n, err
		}
		siblings = slices.DeleteFunc(siblings, func(other store.Snapshot) bool { return other.ID == sn.ID })
		n.Siblings = p.c.snapshotViews(siblings)
	}
	n.Count = strconv.Itoa(1 + len(n.Siblings))
	return n, nil
}
