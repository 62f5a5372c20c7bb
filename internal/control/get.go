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
