package control

import (
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// sandbox finds one by name.
func (p *Project) sandbox(ctx context.Context, name string) (store.Sandbox, error) {
	sb, err := p.c.store.Sandbox(ctx, p.name, name)
	if errors.Is(err, store.ErrNotFound) {
		return sb, api.NotFound("sandbox", name)
	}
	return sb, err
}

// GetSandbox tells of a sandbox and its current session. With resume it
// answers only when a session runs, and waits for one that starts or stops.
func (p *Project) GetSandbox(ctx context.Context, name string, resume bool) (*api.SandboxAndSession, error) {
	sb, err := p.sandbox(ctx, name)
	if err != nil || !resume {
		if err != nil {
			return nil, err
		}
		return p.answer(ctx, sb)
	}
	if s := p.c.sessionOf(sb.ID); s != nil {
		select {
		case <-s.started:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if s.usable() != nil {
			if _, err := s.wait(ctx); err != nil {
				return nil, err
			}
		}
	}
	if sb, err = p.sandbox(ctx, name); err != nil {
		return nil, err
	}
	if sb.Status == api.StatusRunning {
		return p.answer(ctx, sb)
	}
	return nil, p.cannotResume(ctx, sb)
}

// cannotResume is why a sandbox gets no second session: one with an empty
// disk in place of the old would be worse than none.
func (p *Project) cannotResume(ctx context.Context, sb store.Sandbox) error {
	why := ""
	if _, rec, err := p.find(ctx, sb.CurrentSessionID); err == nil && rec.Reason != "" {
		why = " (" + rec.Reason + ")"
	}
	if !sb.Persistent {
		return api.Errorf(api.CodeSandboxStopped, "sandbox %q has stopped%s and is not persistent, so it cannot be resumed; create a new one", sb.Name, why)
	}
	return api.Errorf(api.CodeSandboxStopped, "sandbox %q has stopped%s and cannot be resumed: this version does not keep the disk of a stopped sandbox; delete it and create a new one", sb.Name, why)
}

// GetSession tells of a session, also of one that is over.
func (p *Project) GetSession(ctx context.Context, id string) (*api.SessionAndRoutes, error) {
	_, rec, err := p.find(ctx, id)
	if err != nil {
		return nil, err
	}
	sb, err := p.c.store.SandboxByID(ctx, rec.SandboxID)
	if errors.Is(err, store.ErrNotFound) { // deleted in between
		return nil, api.NotFound("session", id)
	}
	if err != nil {
		return nil, internal("find sandbox of session", err)
	}
	return &api.SessionAndRoutes{Session: sessionView(rec), Routes: p.c.routesView(sb)}, nil
}

// ListSandboxes returns a page.
func (p *Project) ListSandboxes(ctx context.Context, q api.ListSandboxesQuery) (*api.SandboxesPage, error) {
	list, next, err := p.c.store.ListSandboxes(ctx, p.name, q)
	if err != nil {
		return nil, listError(err)
	}
	out := &api.SandboxesPage{Sandboxes: make([]api.Sandbox, 0, len(list)), Pagination: pagination(len(list), next)}
	for _, sb := range list {
		out.Sandboxes = append(out.Sandboxes, p.c.sandboxView(sb))
	}
	return out, nil
}

// ListSessions returns a page.
func (p *Project) ListSessions(ctx context.Context, q api.ListSessionsQuery) (*api.SessionsPage, error) {
	list, next, err := p.c.store.ListSessions(ctx, p.name, q)
	if err != nil {
		return nil, listError(err)
	}
	out := &api.SessionsPage{Sessions: make([]api.Session, 0, len(list)), Pagination: pagination(len(list), next)}
	for _, se := range list {
		out.Sessions = append(out.Sessions, sessionView(se))
	}
	return out, nil
}

func listError(err error) error {
	if errors.Is(err, store.ErrCursor) {
		return api.BadRequest("query cursor: is not of a list with this order; take it from pagination.next of the page before, and keep sortBy and sortOrder")
	}
	return err
}

func pagination(count int, next string) api.Pagination {
	out := api.Pagination{Count: count}
	if next != "" {
		out.Next = &next
	}
	return out
}
