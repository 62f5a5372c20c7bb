package fakecontrol

import (
	"context"
	"maps"
	"slices"

	"github.com/glovebox-dev/glovebox/api"
)

// CreateSnapshot stops the session.
func (p *Project) CreateSnapshot(_ context.Context, id string, req api.CreateSnapshotRequest, key string) (*api.CreateSnapshotResponse, error) {
	p.mu.Lock()
	old, ok := p.keys[key].(*api.CreateSnapshotResponse)
	p.mu.Unlock()
	if ok && key != "" {
		return old, nil
	}
	s, err := p.session(id, true)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.c.count("CreateSnapshot")
	s.stop()
	sn := &api.Snapshot{
		ID: p.c.id(api.SnapshotPrefix), SourceSessionID: id, Region: api.DefaultRegion, Status: api.SnapshotCreated, SizeBytes: 4096,
		CreatedAt: Epoch, UpdatedAt: Epoch, CreationMethod: "manual", SandboxName: s.info.SandboxName,
	}
	if e := req.Expiration.Or(1000); e > 0 {
		sn.ExpiresAt = Epoch + e
	}
	p.c.mu.Lock()
	p.c.owners[sn.ID] = p.name
	p.c.mu.Unlock()
	p.snapshots[sn.ID] = sn
	b := p.sandboxes[s.info.SandboxName]
	sn.ParentID, b.info.CurrentSnapshotID = b.info.CurrentSnapshotID, sn.ID
	p.keys[key] = &api.CreateSnapshotResponse{Snapshot: *sn, Session: s.info}
	return &api.CreateSnapshotResponse{Snapshot: *sn, Session: s.info}, nil
}

// GetSnapshot finds it, deleted or not.
func (p *Project) GetSnapshot(_ context.Context, id string) (*api.Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sn := p.snapshots[id]
	if sn == nil {
		return nil, api.NotFound("snapshot", id)
	}
	out := *sn
	return &out, nil
}

// DiffSnapshots finds one file.
func (p *Project) DiffSnapshots(ctx context.Context, id, with string) (*api.SnapshotDiff, error) {
	for _, id := range []string{id, with} {
		if _, err := p.GetSnapshot(ctx, id); err != nil {
			return nil, err
		}
	}
	return &api.SnapshotDiff{Changes: []api.SnapshotChange{{Kind: "added", Path: "/f"}}}, nil
}

// DeleteSnapshot marks it.
func (p *Project) DeleteSnapshot(ctx context.Context, id string) (*api.Snapshot, error) {
	p.mu.Lock()
	if sn := p.snapshots[id]; sn != nil {
		sn.Status = api.SnapshotDeleted
	}
	p.mu.Unlock()
	return p.GetSnapshot(ctx, id)
}

// ListSnapshots is one page, by id.
func (p *Project) ListSnapshots(_ context.Context, q api.ListSnapshotsQuery) (*api.SnapshotsPage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	page := &api.SnapshotsPage{Snapshots: []api.Snapshot{}}
	for _, id := range slices.Sorted(maps.Keys(p.snapshots)) {
		if sn := p.snapshots[id]; q.Name == "" || q.Name == sn.SandboxName {
			page.Snapshots = append(page.Snapshots, *sn)
		}
	}
	page.Pagination.Count = len(page.Snapshots)
	return page, nil
}

// SnapshotTree knows ancestors alone.
func (p *Project) SnapshotTree(ctx context.Context, q api.SnapshotTreeQuery) (*api.SnapshotTree, error) {
	sn, err := p.GetSnapshot(ctx, q.SnapshotID)
	if err != nil {
		return nil, err
	}
	node := func(sn *api.Snapshot) api.SnapshotNode {
		return api.SnapshotNode{Snapshot: *sn, Siblings: []api.Snapshot{}, Count: "1"}
	}
	anchor := node(sn)
	tree := &api.SnapshotTree{Anchor: &anchor, Snapshots: []api.SnapshotNode{}}
	for sn.ParentID != "" && q.SortOrder == api.SortDesc {
		if sn, err = p.GetSnapshot(ctx, sn.ParentID); err != nil {
			return nil, err
		}
		tree.Snapshots = append(tree.Snapshots, node(sn))
	}
	tree.Pagination.Count = len(tree.Snapshots)
	return tree, nil
}

// ForkSandbox makes another sandbox with the same files.
func (p *Project) ForkSandbox(ctx context.Context, name string, req api.ForkSandboxRequest, key string) (*api.SandboxAndSession, error) {
	p.mu.Lock()
	src := p.sandboxes[name]
	p.mu.Unlock()
	if src == nil {
		return nil, api.NotFound("sandbox", name)
	}
	out, err := p.CreateSandbox(ctx, api.CreateSandboxRequest{Name: req.Name, Timeout: req.Timeout, Tags: src.info.Tags, Persistent: req.Persistent}, key)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sandboxes[out.Sandbox.Name].current().files = maps.Clone(src.current().files)
	return out, nil
}
