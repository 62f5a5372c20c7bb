package control

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// DeleteSandbox stops a sandbox and removes it with its sessions, commands
// and logs. It answers as the sandbox was at the end. The deletion goes on
// when ctx ends.
//
// Its snapshots stay, but with orphans those go too that no other sandbox
// needs.
func (p *Project) DeleteSandbox(ctx context.Context, name string, orphans bool) (*api.SandboxAndRoutes, error) {
	sb, err := p.sandbox(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	free, err := p.c.settle(ctx, sb)
	if err != nil {
		return nil, err
	}
	defer free()
	out, err := p.delete(ctx, sb)
	if err != nil || !orphans {
		return out, err
	}
	n, err := p.c.store.DeleteOrphans(ctx, sb.ID, p.c.now())
	if n > 0 {
		p.c.prune()
	}
	return out, err
}

func (p *Project) delete(ctx context.Context, sb store.Sandbox) (*api.SandboxAndRoutes, error) {
	s := p.c.sessionOf(sb.ID)
	if s != nil {
		s.mu.Lock()
		s.discard = true
		s.mu.Unlock()
		s.stop("its sandbox was deleted")
		if _, err := s.wait(ctx); err != nil {
			return nil, err
		}
	}
	out := &api.SandboxAndRoutes{Sandbox: p.c.sandboxView(sb), Routes: []api.Route{}}
	if last, err := p.c.store.SandboxByID(ctx, sb.ID); err == nil {
		out.Sandbox = p.c.sandboxView(last)
	}
	sessions, err := p.c.store.SessionIDs(ctx, sb.ID)
	if err != nil {
		return nil, err
	}
	err = p.c.store.DeleteSandbox(ctx, sb.ID)
	if errors.Is(err, store.ErrNotFound) && s == nil {
		return nil, api.NotFound("sandbox", sb.Name) // another call was faster
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	for _, id := range sessions {
		if err := os.RemoveAll(p.c.sessionDir(id)); err != nil {
			p.c.log.Error("remove logs of a deleted session", "session", id, "err", err)
		}
	}
	return out, nil
}

// sessionDir holds the logs of a session's commands.
func (c *Control) sessionDir(id string) string { return filepath.Join(c.cfg.LogDir, id) }

// logPath is where a command's output is.
func (c *Control) logPath(sessionID, id string) string {
	return filepath.Join(c.sessionDir(sessionID), id+".log")
}
