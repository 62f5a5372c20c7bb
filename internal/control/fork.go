package control

import (
	"context"
	"maps"
	"slices"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// ForkSandbox makes a sandbox with a copy of another's disk as it is now,
// whether that one runs or not, and with its settings, of which each that req
// holds is replaced. With another image the disk stays behind. It answers as
// CreateSandbox does; the source goes on.
func (p *Project) ForkSandbox(ctx context.Context, name string, req api.ForkSandboxRequest, idempotencyKey string) (*api.SandboxAndSession, error) {
	find := func(id string) (*api.SandboxAndSession, error) {
		sb, err := p.c.store.SandboxByID(ctx, id)
		if err != nil {
			return nil, internal("find the sandbox of an idempotency key", err)
		}
		return p.answer(ctx, sb)
	}
	return once(ctx, p, "fork "+name, idempotencyKey, req, find, func(key *store.Key) (*api.SandboxAndSession, error) {
		src, err := p.sandbox(ctx, name)
		if err != nil {
			return nil, err
		}
		create, err := forkRequest(src, req)
		if err != nil {
			return nil, err
		}
		pl, err := p.check(ctx, create)
		if err != nil {
			return nil, err
		}
		pl.sandbox.PreviewToken = src.PreviewToken
		pl.sandbox.StartCommand, pl.sandbox.WakeOnRequest = src.StartCommand, src.WakeOnRequest && pl.sandbox.Persistent
		if req.Image == "" {
			pl.sandbox.Runtime = src.Runtime
			return p.fork(ctx, src, pl, key)
		}
		from, err := p.createFrom(ctx, create)
		if err != nil {
			return nil, err
		}
		pl.startFrom(from)
		return p.create(ctx, pl, key)
	})
}

// fork makes the sandbox of pl with a copy of the disk of src.
func (p *Project) fork(ctx context.Context, src store.Sandbox, pl *plan, key *store.Key) (*api.SandboxAndSession, error) {
	from, made, err := p.copyDisk(ctx, src, pl.sandbox)
	if err != nil {
		return nil, err
	}
	pl.startFrom(from)
	out, err := p.create(ctx, pl, key)
	if err != nil && made {
		p.dropCopy(ctx, from.snapshot)
	}
	return out, err
}

// copyDisk finds what a copy of the disk of src starts from. That of a
// running sandbox is saved, as a snapshot of its new owner: made is true.
func (p *Project) copyDisk(ctx context.Context, src, owner store.Sandbox) (from origin, made bool, err error) {
	for {
		s := p.c.sessionOf(src.ID)
		if s == nil {
			break
		}
		again, err := s.ready(ctx)
		if err != nil && !again {
			return origin{}, false, err
		}
		if again { // it is over
			continue
		}
		from, made, err = p.copyRunning(ctx, s, owner)
		if err == nil || s.usable() == nil {
			return from, made, err
		}
		if _, err := s.wait(ctx); err != nil { // it ended meanwhile
			return origin{}, false, err
		}
	}
	if src, err = p.sandbox(ctx, src.Name); err != nil {
		return origin{}, false, err
	}
	if src.CurrentSnapshotID != "" {
		from, err = p.origin(ctx, src.CurrentSnapshotID)
		return from, false, err
	}
	from, err = p.imageOrigin(ctx, src.Image)
	return from, false, err
}

// copyRunning saves the disk of a running session, which goes on.
func (p *Project) copyRunning(ctx context.Context, s *session, owner store.Sandbox) (origin, bool, error) {
	rec := s.record()
	save, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	s.saving.Lock()
	saved, err := s.liveMachine().SaveDisk(save, node.Save{GoOn: true})
	var states []store.DriveState
	if err == nil {
		if states = s.states(saved); len(states) > 0 {
			err = p.c.store.SaveDrives(ctx, states)
		}
	}
	s.saving.Unlock()
	if err != nil {
		return origin{}, false, internal("save the disk of session "+s.id, err)
	}
	p.c.mergeDrives(states)
	written := saved.Layer != nil
	if !written && rec.SourceSnapshotID == "" {
		return origin{image: s.image, pinned: rec.Image}, false, nil
	}
	if !written && p.c.stillThere(ctx, p.name, rec.SourceSnapshotID) {
		return origin{snapshot: rec.SourceSnapshotID, image: s.image, pinned: rec.Image}, false, nil
	}
	layers := recorded(s.layers)
	if written {
		layers = append(layers, recorded([]image.Layer{*saved.Layer})...)
	}
	sn := p.c.newSnapshot(rec, owner, store.MadeByFork, layers)
	sn.Provisional = true
	if err := p.c.store.AddSnapshot(ctx, sn); err != nil {
		return origin{}, false, internal("record the disk of a fork", err)
	}
	from, err := p.origin(ctx, sn.ID)
	if err != nil {
		p.dropCopy(ctx, sn.ID)
	}
	return from, true, err
}

// dropCopy deletes the snapshot of a fork that does not come to be.
func (p *Project) dropCopy(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if _, err := p.c.store.DeleteSnapshot(ctx, p.name, id, p.c.now()); err != nil {
		p.c.log.Error("remove snapshot of a fork that did not start", "snapshot", id, "err", err)
	}
	p.c.prune()
}

// forkRequest is the create call of a fork.
func forkRequest(src store.Sandbox, req api.ForkSandboxRequest) (api.CreateSandboxRequest, error) {
	if req.Name == src.Name {
		return api.CreateSandboxRequest{}, api.BadRequest("field name: sandbox %q already exists; choose another name for the fork, or leave it out", src.Name)
	}
	out := api.CreateSandboxRequest{
		Name: req.Name, Image: req.Image, Timeout: req.Timeout, Resources: req.Resources, Persistent: req.Persistent,
		NetworkPolicy: req.NetworkPolicy, NetworkID: req.NetworkID, Env: maps.Clone(src.Env), Tags: maps.Clone(src.Tags),
		SnapshotExpiration: req.SnapshotExpiration, KeepLastSnapshots: req.KeepLastSnapshots,
		Mounts: forkMounts(src.Mounts), Region: req.Region, FailoverRegions: slices.Clone(src.FailoverRegions), Interactive: req.Interactive || src.Interactive,
	}
	for _, port := range src.Ports {
		out.Ports = append(out.Ports, api.IntOf(int64(port.Port)))
	}
	replace(&out.Ports, req.Ports)
	replace(&out.Env, req.Env)
	replace(&out.Tags, req.Tags)
	replace(&out.FailoverRegions, req.FailoverRegions)
	if !out.Timeout.IsSet() {
		out.Timeout = api.IntOf(src.Timeout)
	}
	if out.Resources == nil {
		out.Resources = &api.Resources{VCPUs: api.IntOf(int64(src.VCPUs))}
	}
	if out.Persistent == nil {
		out.Persistent = &src.Persistent
	}
	if out.NetworkPolicy == nil {
		out.NetworkPolicy = src.NetworkPolicy
	}
	if out.NetworkID == "" {
		out.NetworkID = src.NetworkID
	}
	if out.Region == "" {
		out.Region = src.Region
	}
	if !out.SnapshotExpiration.IsSet() && src.SnapshotExpiration != nil {
		out.SnapshotExpiration = api.IntOf(*src.SnapshotExpiration)
	}
	if k := src.KeepLast; out.KeepLastSnapshots == nil && k != nil {
		keep := &api.KeepLastSnapshots{Count: api.IntOf(k.Count), DeleteEvicted: &k.DeleteEvicted}
		if k.Expiration != nil {
			keep.Expiration = api.IntOf(*k.Expiration)
		}
		out.KeepLastSnapshots = keep
	}
	return out, nil
}
