package control

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// RouteState tells whether what a route leads to can be dialled.
type RouteState string

// All states.
const (
	RouteRunning RouteState = "running"
	RouteStopped RouteState = "stopped"
)

// Route is what a preview's subdomain leads to.
type Route struct {
	SessionID   string
	SandboxName string
	Port        int
	State       RouteState
	// Admits tells whether a token opens the port; nil: none is asked for.
	Admits func(token string) bool
	// Wake starts the sandbox and returns the route that then leads there. Nil
	// unless State is RouteStopped and the sandbox wants that.
	Wake func(ctx context.Context) (Route, error)
	// Dial connects to the port; syscall.ECONNREFUSED where nothing listens.
	// Nil unless State is RouteRunning.
	Dial func(ctx context.Context) (net.Conn, error)
	// Done is closed when the session has ended. Nil unless State is
	// RouteRunning.
	Done <-chan struct{}
}

// routeTarget is a port of a live session.
type routeTarget struct {
	s    *session
	port int
}

// setRoutes makes ports the ones at which s is reached.
func (c *Control) setRoutes(s *session, ports []store.Port) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropRoutes(s)
	for _, p := range ports {
		c.routes[p.Subdomain] = routeTarget{s, p.Port}
	}
}

// setPreviewToken replaces the token that the previews of s ask for.
func (c *Control) setPreviewToken(s *session, token *store.TokenHash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.previewToken = token
}

// hashPreview is what is stored of a preview's token; nil for none.
func hashPreview(token string) *store.TokenHash {
	if token == "" {
		return nil
	}
	hash := store.HashToken(token)
	return &hash
}

// dropRoutes removes the routes to s. Held: mu.
func (c *Control) dropRoutes(s *session) {
	for sub, t := range c.routes {
		if t.s == s {
			delete(c.routes, sub)
		}
	}
}

// Route finds what a subdomain, in any case, leads to; CodeNotFound where
// there is no such port.
func (c *Control) Route(ctx context.Context, subdomain string) (Route, error) {
	subdomain = strings.ToLower(subdomain)
	c.mu.Lock()
	t, ok := c.routes[subdomain]
	var token *store.TokenHash
	if ok {
		token = t.s.previewToken
	}
	c.mu.Unlock()
	if ok {
		if err := t.s.usable(); err == nil {
			rec, m := t.s.record(), t.s.liveMachine()
			return Route{SessionID: rec.ID, SandboxName: rec.SandboxName, Port: t.port, State: RouteRunning, Admits: admits(token), Done: m.Done(),
				Dial: func(ctx context.Context) (net.Conn, error) { return m.Dial(ctx, t.port) }}, nil
		}
	}
	sb, err := c.store.SandboxOfSubdomain(ctx, subdomain)
	if errors.Is(err, store.ErrNotFound) {
		return Route{}, api.NotFound("preview", subdomain)
	}
	if err != nil {
		return Route{}, internal("find preview", err)
	}
	r := Route{SessionID: sb.CurrentSessionID, SandboxName: sb.Name, State: RouteStopped, Admits: admits(sb.PreviewToken)}
	if sb.WakeOnRequest && sb.Persistent {
		r.Wake = func(ctx context.Context) (Route, error) { return c.wake(ctx, sb, subdomain) }
	}
	for _, p := range sb.Ports {
		if p.Subdomain == subdomain {
			r.Port = p.Port
		}
	}
	return r, nil
}
