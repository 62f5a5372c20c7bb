package control

import (
	"context"
	"slices"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/egress"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// UpdateSandbox changes what the request holds. Ports and network policy act
// on the running session too; the rest is for later ones.
func (p *Project) UpdateSandbox(ctx context.Context, name string, req api.UpdateSandboxRequest) (*api.SandboxAndRoutes, error) {
	sb, err := p.sandbox(ctx, name)
	if err != nil {
		return nil, err
	}
	change, policy, err := p.planUpdate(ctx, req)
	if err != nil {
		return nil, err
	}
	if req.CurrentSnapshotID != "" {
		free, err := p.c.settle(ctx, sb)
		if err != nil {
			return nil, err
		}
		defer free()
		if change, err = p.rollBack(ctx, sb, req.CurrentSnapshotID, change); err != nil {
			return nil, err
		}
	}
	s := p.c.sessionOf(sb.ID)
	if s != nil && s.usable() != nil {
		s = nil
	}
	if _, err := dryRun(sb, change); err != nil {
		return nil, err
	}
	if s != nil && req.NetworkPolicy != nil {
		// The machine first: an answer must not speak of a policy that is not
		// in force. That the session ends in between is no reason to refuse.
		if err := s.setPolicy(ctx, req.NetworkPolicy, policy); err != nil && s.usable() == nil {
			return nil, err
		}
	}
	sb, err = p.c.store.UpdateSandbox(context.WithoutCancel(ctx), sb.ID, change)
	if err != nil {
		return nil, p.startsFrom(err, "sandbox", name, req.CurrentSnapshotID)
	}
	if s != nil && req.PreviewToken != nil {
		p.c.setPreviewToken(s, sb.PreviewToken)
	}
	if s != nil && req.Ports != nil {
		p.c.setRoutes(s, sb.Ports)
	}
	return &api.SandboxAndRoutes{Sandbox: p.c.sandboxView(sb), Routes: p.c.routesView(sb)}, nil
}

// rollBack adds to a change that the next session starts from a snapshot. The
// session that runs ends as it would have: its disk is kept, but the choice
// stands. Held: the sandbox is settled.
func (p *Project) rollBack(ctx context.Context, sb store.Sandbox, id string, change func(*store.Sandbox) error) (func(*store.Sandbox) error, error) {
	sn, err := p.usableSnapshot(ctx, id)
	if err != nil {
		return nil, err
	}
	img, err := p.c.pinnedImage(ctx, sn.Image)
	if err != nil {
		return nil, err
	}
	live := p.c.sessionOf(sb.ID) != nil
	return func(sb *store.Sandbox) error {
		sb.CurrentSnapshotID, sb.RolledBack = id, live
		sb.Image, sb.Runtime, sb.Cwd = sn.Image, sn.Runtime, img.Config.WorkingDir
		return change(sb)
	}, nil
}

// dryRun finds what only the sandbox itself tells to be wrong.
func dryRun(sb store.Sandbox, change func(*store.Sandbox) error) (store.Sandbox, error) {
	sb.Ports = slices.Clone(sb.Ports)
	return sb, change(&sb)
}

// planUpdate checks req and returns what it does to a sandbox.
func (p *Project) planUpdate(ctx context.Context, req api.UpdateSandboxRequest) (func(*store.Sandbox) error, egress.Policy, error) {
	c, l := p.c, p.c.cfg.Limits
	var (
		policy  egress.Policy
		vcpus   int
		timeout int64
		ports   []int
		mounts  map[string]api.Mount
		keep    *api.SnapshotRetention
	)
	err := inOrder(
		func() (err error) {
			if req.NetworkPolicy != nil {
				policy, err = egress.Parse(*req.NetworkPolicy)
			}
			return err
		},
		func() (err error) {
			if req.Resources != nil {
				vcpus, err = l.ValidateResources(req.Resources)
			}
			return err
		},
		func() error {
			d, err := l.ValidateTimeout("timeout", req.Timeout)
			timeout = d.Milliseconds()
			return err
		},
		func() (err error) {
			if req.Ports != nil {
				ports, err = api.ValidatePorts(*req.Ports)
			}
			return err
		},
		func() error {
			if req.Tags == nil {
				return nil
			}
			return api.ValidateTags(*req.Tags)
		},
		func() (err error) {
			if req.Mounts != nil {
				mounts, err = p.checkMounts(ctx, *req.Mounts)
			}
			return err
		},
		func() error {
			if req.PreviewToken == nil {
				return nil
			}
			return api.ValidatePreviewToken(*req.PreviewToken)
		},
		func() error {
			if !req.StartCommand.Set || req.StartCommand.Null {
				return nil
			}
			return req.StartCommand.Value.Validate(l)
		},
		func() error { return api.ValidateSnapshotExpiration("snapshotExpiration", req.SnapshotExpiration) },
		func() (err error) {
			if k := req.KeepLastSnapshots; k.Set && !k.Null {
				keep, err = api.ValidateKeepLast(&k.Value)
			}
			return err
		},
	)
	if err != nil {
		return nil, policy, err
	}
	return func(sb *store.Sandbox) error {
		sb.UpdatedAt = c.now()
		replace(&sb.Persistent, req.Persistent)
		if req.NetworkID.Set {
			sb.NetworkID = req.NetworkID.Value
		}
		replace(&sb.Tags, req.Tags)
		replace(&sb.FailoverRegions, req.FailoverRegions)
		if req.Region != "" {
			sb.Region = req.Region
		}
		if vcpus != 0 {
			sb.VCPUs = vcpus
		}
		if req.Timeout.IsSet() {
			sb.Timeout = timeout
		}
		if req.NetworkPolicy != nil {
			sb.NetworkPolicy = req.NetworkPolicy
		}
		if req.Ports != nil {
			sb.Ports = withPorts(sb.Ports, ports)
		}
		if req.Mounts != nil {
			sb.Mounts = mounts
		}
		if req.PreviewToken != nil {
			sb.PreviewToken = hashPreview(*req.PreviewToken)
		}
		replace(&sb.WakeOnRequest, req.WakeOnRequest)
		if s := req.StartCommand; s.Set {
			if sb.StartCommand = nil; !s.Null {
				sb.StartCommand = &s.Value
			}
		}
		if req.SnapshotExpiration.IsSet() {
			sb.SnapshotExpiration = optional(req.SnapshotExpiration)
		}
		if req.KeepLastSnapshots.Set {
			sb.KeepLast = keep
		}
		if err := validateWake(sb.WakeOnRequest, sb.Persistent); err != nil {
			return err
		}
		return api.ValidateRegions(sb.Region, sb.FailoverRegions)
	}, policy, nil
}

func replace[T any](old, new *T) {
	if new != nil {
		*old = *new
	}
}

// withPorts is the list of ports, each with the subdomain that it has had.
func withPorts(old []store.Port, ports []int) []store.Port {
	out := make([]store.Port, 0, len(ports))
	for _, port := range ports {
		i := slices.IndexFunc(old, func(p store.Port) bool { return p.Port == port })
		if i >= 0 {
			out = append(out, old[i])
		} else {
			out = append(out, store.Port{Port: port, Subdomain: api.NewSubdomain()})
		}
	}
	return out
}
