package control

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// attached is a drive of a session, guarded by Control.mu until it starts. It is so from before the session starts
// until its end is recorded; that is all that makes it so, so what dies with
// the server lets its drives go.
type attached struct {
	drive    store.Drive
	path     string
	readOnly bool
	// layers that it has in this session. What the session writes is one more
	// on top of them, however often it is kept.
	layers []image.Layer
}

// GetDrive tells of a drive.
func (p *Project) GetDrive(ctx context.Context, nameOrID string) (*api.Drive, error) {
	d, err := p.drive(ctx, nameOrID)
	if err != nil {
		return nil, err
	}
	return p.c.driveView(d), nil
}

// CreateDrive makes a drive, or finds the one of this name; made tells which.
// What a request says of one that exists must be so.
func (p *Project) CreateDrive(ctx context.Context, name string, req api.CreateDriveRequest) (out *api.Drive, made bool, err error) {
	size, sized := req.MaxSizeBytes.Get()
	region := req.Region
	if region == "" {
		region = api.DefaultRegion
	}
	err = inOrder(
		func() error { return api.ValidateName("name", name) },
		func() error { return api.ValidateRegions(region, nil) },
		func() error { return api.ValidateDriveSize(req.MaxSizeBytes) },
	)
	if err != nil {
		return nil, false, err
	}
	d, err := p.c.store.Drive(ctx, p.name, name)
	if errors.Is(err, store.ErrNotFound) {
		if !sized {
			size = p.c.cfg.Limits.DiskBytes
		}
		now := p.c.now()
		d = store.Drive{ID: api.NewID(api.DrivePrefix), Project: p.name, Name: name, Region: region, MaxBytes: size,
			CreatedAt: now, UpdatedAt: now, Layers: []store.SnapshotLayer{}}
		switch err = p.c.store.AddDrive(ctx, d); {
		case err == nil:
			return p.c.driveView(d), true, nil
		case errors.Is(err, store.ErrExists): // another call was faster
			d, err = p.c.store.Drive(ctx, p.name, name)
		}
	}
	switch {
	case err != nil:
		return nil, false, err
	case sized && size != d.MaxBytes:
		return nil, false, api.Errorf(api.CodeConflict, "drive %q exists with maxSizeBytes %d, which cannot be changed; leave the field out, or choose another name", name, d.MaxBytes)
	case req.Region != "" && region != d.Region:
		return nil, false, api.Errorf(api.CodeConflict, "drive %q exists in region %q; leave the field region out, or choose another name", name, d.Region)
	}
	return p.c.driveView(d), false, nil
}

// ListDrives returns a page.
func (p *Project) ListDrives(ctx context.Context, q api.ListDrivesQuery) (*api.DrivesPage, error) {
	list, next, err := p.c.store.ListDrives(ctx, p.name, q)
	if err != nil {
		return nil, listError(err)
	}
	out := &api.DrivesPage{Drives: make([]api.Drive, 0, len(list)), Pagination: pagination(len(list), next)}
	for _, d := range list {
		out.Drives = append(out.Drives, *p.c.driveView(d))
	}
	return out, nil
}

// DeleteDrive removes a drive that no session has, and all that it holds.
func (p *Project) DeleteDrive(ctx context.Context, nameOrID string) (*api.Drive, error) {
	p.c.layersMu.Lock() // nobody attaches it meanwhile
	defer p.c.layersMu.Unlock()
	d, err := p.drive(ctx, nameOrID)
	if err != nil {
		return nil, err
	}
	if user := p.c.userOf(d.ID); user != nil {
		return nil, api.Errorf(api.CodeConflict, "drive %q is attached to sandbox %q; stop that one first", d.Name, user.record().SandboxName)
	}
	err = p.c.store.DeleteDrive(ctx, d.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, api.NotFound("drive", nameOrID)
	}
	if err != nil {
		return nil, err
	}
	p.c.prune()
	return p.c.driveView(d), nil
}

func (p *Project) drive(ctx context.Context, nameOrID string) (store.Drive, error) {
	d, err := p.c.store.Drive(ctx, p.name, nameOrID)
	if errors.Is(err, store.ErrNotFound) {
		return d, api.NotFound("drive", nameOrID)
	}
	return d, err
}

// driveView is a drive as answers show it.
func (c *Control) driveView(d store.Drive) *api.Drive {
	out := &api.Drive{ID: d.ID, Name: d.Name, ProjectID: d.Project, Region: d.Region, MaxSizeBytes: d.MaxBytes, CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt}
	if s := c.userOf(d.ID); s != nil {
		out.CurrentSessionID, out.CurrentSandboxName = s.id, s.record().SandboxName
	}
	return out
}

// userOf returns a session that has a drive, the writing one if there is one.
func (c *Control) userOf(driveID string) (user *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.live {
		for _, a := range s.drives {
			if a.drive.ID == driveID && (user == nil || !a.readOnly) {
				user = s
			}
		}
	}
	return user
}

// checkMounts checks mounts, whose drives must exist, and returns them as they
// are stored.
func (p *Project) checkMounts(ctx context.Context, mounts map[string]api.Mount) (map[string]api.Mount, error) {
	if err := api.ValidateMounts(mounts); err != nil {
		return nil, err
	}
	out := make(map[string]api.Mount, len(mounts))
	for at, m := range mounts {
		if _, err := p.drive(ctx, m.Drive); err != nil {
			return nil, err
		}
		if m.Mode == "" {
			m.Mode = api.MountReadWrite
		}
		if m.Mode == api.MountReadOnly {
			m.Mode = api.MountSnapshot
		}
		out[at] = m
	}
	return out, nil
}

// findDrives finds the drives of a session that is to be made live.
func (p *Project) findDrives(ctx context.Context, s *session, mounts map[string]api.Mount) error {
	for _, at := range slices.Sorted(maps.Keys(mounts)) {
		d, err := p.drive(ctx, mounts[at].Drive)
		if err != nil {
			return err
		}
		if len(d.Layers) >= driver.MaxLayers { // merging in the background was not fast enough
			if err := p.c.mergeDrive(ctx, d); err != nil {
				return internal("merge the layers of drive "+d.ID, err)
			}
		}
		s.drives = append(s.drives, attached{drive: d, path: at, readOnly: mounts[at].Mode != api.MountReadWrite})
	}
	return nil
}

// writable refuses a session that would be the second writer of a drive. Held:
// Control.mu.
func (c *Control) writable(s *session) error {
	for _, a := range s.drives {
		if a.readOnly {
			continue
		}
		for _, other := range c.live {
			if other != s && other.writes(a.drive.ID) {
				return api.Errorf(api.CodeConflict, "drive %q is attached to sandbox %q, which may write to it; stop that one first, or mount the drive with the mode snapshot", a.drive.Name, other.record().SandboxName)
			}
		}
	}
	return nil
}

func (s *session) writes(driveID string) bool {
	return slices.ContainsFunc(s.drives, func(a attached) bool { return !a.readOnly && a.drive.ID == driveID })
}

// loadDrives finds what the drives of a live session hold: only now nobody
// else writes to those that it may. Held: layersMu for reading.
func (p *Project) loadDrives(ctx context.Context, s *session) error {
	loaded := slices.Clone(s.drives)
	for i := range loaded {
		a := &loaded[i]
		d, err := p.drive(ctx, a.drive.ID)
		if err != nil {
			return err
		}
		if a.readOnly && len(d.Layers) == 0 {
			return api.Errorf(api.CodeDriveNotInitialized, "drive %q holds nothing yet: mount it with the mode read-write first; what is written is kept when that session stops", d.Name)
		}
		a.drive, a.layers = d, stored(d.Layers)
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	s.drives = loaded
	return nil
}

// nodeDrives is how a node is told of the session's drives.
func (s *session) nodeDrives() []node.Drive {
	var out []node.Drive
	for _, a := range s.drives {
		out = append(out, node.Drive{Path: a.path, Layers: a.layers, MaxBytes: a.drive.MaxBytes, ReadOnly: a.readOnly})
	}
	return out
}

// recordedDrives is how the session's drives are stored while it runs.
func (s *session) recordedDrives() []store.SessionDrive {
	var out []store.SessionDrive
	for _, a := range s.drives {
		out = append(out, store.SessionDrive{ID: a.drive.ID, Path: a.path, ReadOnly: a.readOnly, Layers: recorded(a.layers)})
	}
	return out
}

// takeOverDrives is the reverse of recordedDrives.
func (c *Control) takeOverDrives(ctx context.Context, se store.Session) ([]attached, error) {
	var out []attached
	for _, d := range se.Drives {
		drive, err := c.store.Drive(ctx, se.Project, d.ID)
		if err != nil {
			return nil, err
		}
		out = append(out, attached{drive: drive, path: d.Path, readOnly: d.ReadOnly, layers: stored(d.Layers)})
	}
	return out, nil
}

// writesDrives tells whether the session has a drive to keep.
func (s *session) writesDrives() bool {
	return slices.ContainsFunc(s.drives, func(a attached) bool { return !a.readOnly })
}

// states are those of the drives of which a save made layers.
func (s *session) states(saved node.Saved) []store.DriveState {
	var out []store.DriveState
	for i, l := range saved.Drives {
		if l == nil {
			continue
		}
		a := s.drives[i]
		out = append(out, store.DriveState{ID: a.drive.ID, At: s.c.now(), Layers: append(recorded(a.layers), recorded([]image.Layer{*l})...)})
	}
	return out
}

// forkMounts are the mounts of a copy: it reads what its source writes, as it
// was when the copy was made or started last.
func forkMounts(mounts map[string]api.Mount) map[string]api.Mount {
	out := maps.Clone(mounts)
	for at, m := range out {
		m.Mode = api.MountSnapshot
		out[at] = m
	}
	return out
}

// mergeDrives shortens the chains of drives that have become too long.
func (c *Control) mergeDrives(states []store.DriveState) {
	for _, st := range states {
		if len(st.Layers) > maxChain {
			c.spawn(func(ctx context.Context) {
				if err := c.mergeDrive(ctx, store.Drive{ID: st.ID, Layers: st.Layers}); err != nil && ctx.Err() == nil {
					c.log.Error("merge layers", "drive", st.ID, "err", err)
				}
			})
		}
	}
}

// mergeDrive makes one layer of the topmost ones of a drive.
func (c *Control) mergeDrive(ctx context.Context, d store.Drive) error {
	c.mergeMu.Lock()
	defer c.mergeMu.Unlock()
	n, all := topRun(d.Layers), stored(d.Layers)
	merged, err := c.node.MergeLayers(ctx, all[:n], all[n:])
	if err != nil {
		return err
	}
	err = c.store.ReplaceDriveLayers(ctx, d.ID, d.Layers, recorded(append(all[:n:n], merged)))
	c.prune()
	if errors.Is(err, store.ErrNotFound) {
		return nil // it was written or deleted meanwhile, or merged
	}
	return err
}
