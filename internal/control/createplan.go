package control

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/egress"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/scratch"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// plan is a create call that was checked: all that can be wrong with it
// before anything is made.
type plan struct {
	sandbox store.Sandbox
	from    origin
	policy  egress.Policy
	source  *api.Source // nil, git or tarball
}

// runtimes are the values of the field runtime, which older clients send
// instead of an image; the default image serves them all.
var runtimes = []string{"node26", "node24", "node22", "python3.13"}

// check finds what is wrong with a create call before anything is made. What
// the sandbox starts from is still missing in the plan: see startFrom.
func (p *Project) check(ctx context.Context, req api.CreateSandboxRequest) (*plan, error) {
	c := p.c
	l := c.cfg.Limits
	spec := store.SandboxSpec{
		Persistent: req.Persistent == nil || *req.Persistent, Region: req.Region, FailoverRegions: req.FailoverRegions,
		NetworkID: req.NetworkID, Runtime: req.Runtime, NetworkPolicy: req.NetworkPolicy, Env: req.Env, Interactive: req.Interactive,
	}
	if spec.Region == "" {
		spec.Region = api.DefaultRegion
	}
	name := req.Name
	if name == "" {
		name = api.NewName()
	}
	pl := &plan{}
	var ports []int
	timeout := api.Milliseconds(0)
	err := inOrder(
		func() error { return api.ValidateName("name", name) },
		func() error { return api.ValidateRegions(spec.Region, spec.FailoverRegions) },
		func() (err error) { timeout, err = l.ValidateTimeout("timeout", req.Timeout); return err },
		func() (err error) { spec.VCPUs, err = l.ValidateResources(req.Resources); return err },
		func() (err error) { ports, err = api.ValidatePorts(req.Ports); return err },
		func() error { return l.ValidateEnv(req.Env) },
		func() error { return api.ValidateTags(req.Tags) },
		func() (err error) { spec.Mounts, err = p.checkMounts(ctx, req.Mounts); return err },
		func() error { return api.ValidatePreviewToken(req.PreviewToken) },
		func() error { return req.StartCommand.Validate(l) },
		func() error { return validateWake(req.WakeOnRequest, spec.Persistent) },
		func() error { return api.ValidateSnapshotExpiration("snapshotExpiration", req.SnapshotExpiration) },
		func() (err error) { spec.KeepLast, err = api.ValidateKeepLast(req.KeepLastSnapshots); return err },
		func() (err error) { pl.policy, err = parsePolicy(req.NetworkPolicy); return err },
		func() (err error) { pl.source, err = checkSource(req); return err },
	)
	if err != nil {
		return nil, err
	}
	spec.Timeout, spec.PreviewToken = timeout.Milliseconds(), hashPreview(req.PreviewToken)
	spec.StartCommand, spec.WakeOnRequest = req.StartCommand, req.WakeOnRequest
	spec.SnapshotExpiration = optional(req.SnapshotExpiration)
	now := c.now()
	pl.sandbox = store.Sandbox{
		ID: api.NewID(api.SandboxPrefix), Project: p.name, Name: name, CreatedAt: now, UpdatedAt: now,
		Status: api.StatusPending, StatusUpdatedAt: now, Tags: req.Tags, Ports: withPorts(nil, ports), SandboxSpec: spec,
	}
	return pl, nil
}

// startFrom completes a plan.
func (pl *plan) startFrom(from origin) {
	pl.from = from
	pl.sandbox.Image, pl.sandbox.Cwd = from.pinned, from.image.Config.WorkingDir
	if pl.sandbox.Persistent { // should its first session end before its disk is kept
		pl.sandbox.CurrentSnapshotID = from.snapshot
	}
}

// createFrom finds what a create call starts from.
func (p *Project) createFrom(ctx context.Context, req api.CreateSandboxRequest) (origin, error) {
	if req.Source != nil && req.Source.Type == api.SourceSnapshot {
		return p.origin(ctx, req.Source.SnapshotID)
	}
	img, err := p.c.resolve(ctx, req)
	return origin{image: img, pinned: img.Pinned()}, err
}

// inOrder stops at the first error.
func inOrder(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func optional(i api.Int) *int64 {
	if v, set := i.Get(); set {
		return &v
	}
	return nil
}

// checkSource returns the source that is to be fetched, or nil.
func checkSource(req api.CreateSandboxRequest) (*api.Source, error) {
	if req.Source == nil {
		return nil, nil
	}
	if err := req.Source.Validate(); err != nil {
		return nil, err
	}
	if req.Source.Type == api.SourceSnapshot {
		if req.Runtime != "" || req.Image != "" {
			return nil, api.BadRequest("field source: a snapshot brings its own image; leave out runtime and image")
		}
		return nil, nil
	}
	return req.Source, nil
}

// resolve finds the image that the call names.
func (c *Control) resolve(ctx context.Context, req api.CreateSandboxRequest) (image.Image, error) {
	switch {
	case req.Image != "" && req.Runtime != "":
		return image.Image{}, api.BadRequest("field runtime: cannot be used together with image; leave one out")
	case len(req.Image) > api.MaxImageLength:
		return image.Image{}, api.BadRequest("field image: is longer than %d characters", api.MaxImageLength)
	case req.Runtime != "" && !slices.Contains(runtimes, req.Runtime):
		return image.Image{}, api.BadRequest("field runtime: %.40q is unknown; use %s, or an image", req.Runtime, strings.Join(runtimes, ", "))
	}
	img, err := c.cfg.Images.Resolve(ctx, req.Image)
	if err == nil {
		return img, nil
	}
	if _, ok := errors.AsType[*api.Error](err); ok || ctx.Err() != nil {
		return img, err
	}
	if full, ok := errors.AsType[*scratch.ErrReserve](err); ok {
		return img, noRoom("get image "+req.Image, full)
	}
	return img, api.BadRequest("field image: %v", err)
}
