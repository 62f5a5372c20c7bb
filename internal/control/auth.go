package control

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// DefaultProject is the project of a request that names none, with a token
// that is bound to none.
const DefaultProject = "default"

// Authenticate tells who a token stands for. The database is asked each time:
// another process may have added the token a moment ago.
func (c *Control) Authenticate(ctx context.Context, token string) (api.Identity, error) {
	hash := store.HashToken(token)
	if c.cfg.RootToken != "" && subtle.ConstantTimeCompare(hash[:], c.root[:]) == 1 {
		return api.Identity{}, nil
	}
	t, err := c.store.FindToken(ctx, hash)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return api.Identity{}, api.Errorf(api.CodeUnauthorized, "the token is not known here; make one with `glovebox token create`")
	case err != nil:
		return api.Identity{}, internal("authenticate", err)
	}
	return api.Identity{Project: t.Project}, nil
}

// CreateToken makes a token that is bound to a project, and the project. Only
// its hash is kept: it cannot be shown again.
func (c *Control) CreateToken(ctx context.Context, project string) (string, error) {
	return newToken(ctx, c.store, project, c.now())
}

// NewToken is CreateToken for a program that has the data but no Control,
// such as one beside a running server.
func NewToken(ctx context.Context, s store.Store, project string) (string, error) {
	return newToken(ctx, s, project, time.Now().UnixMilli())
}

func newToken(ctx context.Context, s store.Store, project string, now int64) (string, error) {
	if err := api.ValidateName("project", project); err != nil {
		return "", err
	}
	if err := s.EnsureProject(ctx, project, now); err != nil {
		return "", err
	}
	token := "gbx_" + strings.ToLower(rand.Text()+rand.Text())
	return token, s.AddToken(ctx, store.Token{Hash: store.HashToken(token), Project: project, CreatedAt: now})
}

// Project is one project's world. Safe for concurrent use.
type Project struct {
	c    *Control
	name string
}

// Project returns the project of that name, made on first use.
func (c *Control) Project(ctx context.Context, name string) (*Project, error) {
	if name == "" {
		name = DefaultProject
	}
	c.mu.Lock()
	known := c.projects[name]
	c.mu.Unlock()
	if !known {
		if err := api.ValidateName("projectId", name); err != nil {
			return nil, err
		}
		if err := c.store.EnsureProject(ctx, name, c.now()); err != nil {
			return nil, internal("use project", err)
		}
		c.mu.Lock()
		c.projects[name] = true
		c.mu.Unlock()
	}
	return &Project{c: c, name: name}, nil
}

// ProjectOf returns the project that a session or a snapshot belongs to, for a
// token that may use any.
func (c *Control) ProjectOf(ctx context.Context, id string) (string, error) {
	c.mu.Lock()
	s := c.live[id]
	c.mu.Unlock()
	if s != nil {
		return s.project, nil
	}
	kind, find := "session", c.store.ProjectOfSession
	if strings.HasPrefix(id, api.SnapshotPrefix) {
		kind, find = "snapshot", c.store.ProjectOfSnapshot
	}
	project, err := find(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return "", api.NotFound(kind, id)
	}
	return project, err
}
