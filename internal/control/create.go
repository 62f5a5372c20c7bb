package control

import (
	"context"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// cleanupTimeout bounds the work that undoes something after a failure,
// which goes on when the client is gone.
const cleanupTimeout = 30 * time.Second

// CreateSandbox makes a sandbox and answers when its first session can run
// commands. Where that fails, or ctx ends before, nothing of it is left.
func (p *Project) CreateSandbox(ctx context.Context, req api.CreateSandboxRequest, idempotencyKey string) (*api.SandboxAndSession, error) {
	find := func(id string) (*api.SandboxAndSession, error) {
		sb, err := p.c.store.SandboxByID(ctx, id)
		if err != nil {
			return nil, internal("find the sandbox of an idempotency key", err)
		}
		return p.answer(ctx, sb)
	}
	return once(ctx, p, "create", idempotencyKey, req, find, func(key *store.Key) (*api.SandboxAndSession, error) {
		pl, err := p.check(ctx, req)
		if err != nil {
			return nil, err
		}
		from, err := p.createFrom(ctx, req)
		if err != nil {
			return nil, err
		}
		pl.startFrom(from)
		return p.create(ctx, pl, key)
	})
}

func (p *Project) create(ctx context.Context, pl *plan, key *store.Key) (*api.SandboxAndSession, error) {
	c := p.c
	sb := &pl.sandbox
	se := newRecord(*sb, c.now())
	sb.CurrentSessionID = se.ID
	if key != nil {
		key.ResultID = sb.ID
	}
	s := c.newSession(se, pl.from.image, sb.SandboxSpec)
	if err := p.registerFrom(ctx, s, pl.from, sb.Mounts); err != nil {
		return nil, err
	}
	se.SourceSnapshotID = pl.from.snapshot
	if err := c.store.CreateSandbox(ctx, *sb, se, key); err != nil {
		s.abandon()
		if errors.Is(err, store.ErrExists) {
			return nil, api.BadRequest("field name: sandbox %q already exists; choose another name, or delete it first", sb.Name)
		}
		return nil, p.startsFrom(err, "sandbox", sb.Name, pl.from.snapshot)
	}
	if err := s.start(ctx, pl.policy, pl.source, sb.Ports); err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if e := c.store.DeleteSandbox(undo, sb.ID); e != nil && !errors.Is(e, store.ErrNotFound) {
			c.log.Error("remove sandbox that did not start", "sandbox", sb.ID, "err", e)
		}
		return nil, err
	}
	created, err := c.store.SandboxByID(ctx, sb.ID)
	if err != nil { // it runs: what is known must do
		created = *sb
		created.Status = api.StatusRunning
	}
	return &api.SandboxAndSession{Sandbox: c.sandboxView(created), Session: sessionView(s.record()), Routes: c.routesView(created)}, nil
}

// newRecord is a session of sb that is about to start.
func newRecord(sb store.Sandbox, now int64) store.Session {
	return store.Session{
		ID: api.NewID(api.SessionPrefix), Project: sb.Project, SandboxID: sb.ID, SandboxName: sb.Name,
		CreatedAt: now, Status: api.StatusPending,
		SessionData: store.SessionData{
			VCPUs: sb.VCPUs, Region: sb.Region, Runtime: sb.Runtime, Image: sb.Image, Timeout: sb.Timeout,
			RequestedAt: now, UpdatedAt: now, Cwd: sb.Cwd, Interactive: sb.Interactive, NetworkPolicy: sb.NetworkPolicy,
		},
	}
}

// abandon drops a session of which nothing was made or recorded.
func (s *session) abandon() {
	s.mu.Lock()
	s.ending = true
	s.rec.Status = api.StatusFailed
	s.mu.Unlock()
	s.over()
	close(s.started)
}

// answer tells of a sandbox and its current session.
func (p *Project) answer(ctx context.Context, sb store.Sandbox) (*api.SandboxAndSession, error) {
	_, rec, err := p.find(ctx, sb.CurrentSessionID)
	if err != nil {
		return nil, err
	}
	return &api.SandboxAndSession{Sandbox: p.c.sandboxView(sb), Session: sessionView(rec), Routes: p.c.routesView(sb)}, nil
}
