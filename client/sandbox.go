package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

var sandboxesPath = []string{"v2", "sandboxes"}

func sandboxPath(name string) []string { return []string{"v2", "sandboxes", name} }

func sessionPath(id string, rest ...string) []string {
	return append([]string{"v2", "sandboxes", "sessions", id}, rest...)
}

// Sandbox is a sandbox and its current session. Calls that need a running
// session start one where the sandbox is persistent and has stopped.
type Sandbox struct {
	c *Client

	resumeMu sync.Mutex // held while a session is being started

	mu      sync.Mutex // guards what follows
	sandbox api.Sandbox
	session api.Session
	routes  []api.Route
}

func (c *Client) newSandbox(a api.SandboxAndSession) *Sandbox {
	return &Sandbox{c: c, sandbox: a.Sandbox, session: a.Session, routes: a.Routes}
}

// CreateSandbox makes a sandbox and returns when it can run commands.
func (c *Client) CreateSandbox(ctx context.Context, req api.CreateSandboxRequest) (*Sandbox, error) {
	var out api.SandboxAndSession
	r := request{method: http.MethodPost, path: []string{"v3", "sandboxes"}, json: req, key: true}
	if req.Runtime != "" {
		r.path = sandboxesPath
	}
	if err := c.call(ctx, r, &out); err != nil {
		return nil, wrap(err, "create sandbox")
	}
	return c.newSandbox(out), nil
}

// GetSandbox returns the sandbox of that name. It does not start a session:
// ResumeSandbox does, and so does the first call that needs one.
func (c *Client) GetSandbox(ctx context.Context, name string) (*Sandbox, error) {
	return c.getSandbox(ctx, name, false)
}

// ResumeSandbox returns the sandbox of that name with a running session,
// which it starts where there is none.
func (c *Client) ResumeSandbox(ctx context.Context, name string) (*Sandbox, error) {
	return c.getSandbox(ctx, name, true)
}

func (c *Client) getSandbox(ctx context.Context, name string, resume bool) (*Sandbox, error) {
	out, err := c.fetchSandbox(ctx, name, resume)
	if err != nil {
		return nil, wrap(err, "get sandbox %s", name)
	}
	return c.newSandbox(out), nil
}

func (c *Client) fetchSandbox(ctx context.Context, name string, resume bool) (api.SandboxAndSession, error) {
	var out api.SandboxAndSession
	if name == "" {
		return out, errors.New("the name is empty")
	}
	r := request{method: http.MethodGet, path: sandboxPath(name), repeatable: true}
	if resume {
		r.query = url.Values{"resume": {"true"}}
	}
	return out, c.call(ctx, r, &out)
}

// DeleteSandbox stops and removes a sandbox. Its snapshots stay unless
// deleteSnapshots.
func (c *Client) DeleteSandbox(ctx context.Context, name string, deleteSnapshots bool) error {
	if name == "" {
		return errors.New("delete sandbox: the name is empty")
	}
	r := request{method: http.MethodDelete, path: sandboxPath(name)}
	if deleteSnapshots {
		r.query = url.Values{"deleteOrphanSnapshots": {"true"}}
	}
	return wrap(c.call(ctx, r, nil), "delete sandbox %s", name)
}

// Name is the sandbox's name, by which GetSandbox finds it again.
func (s *Sandbox) Name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sandbox.Name
}

// Info is the sandbox as the last answer showed it.
func (s *Sandbox) Info() api.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sandbox
}

// Session is the current session as the last answer showed it.
func (s *Sandbox) Session() api.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

// Routes are the sandbox's ports with their URLs.
func (s *Sandbox) Routes() []api.Route {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.routes
}

// Domain returns the URL of a port that the sandbox was made with.
func (s *Sandbox) Domain(port int) (string, error) {
	for _, r := range s.Routes() {
		if r.Port == port {
			return r.URL, nil
		}
	}
	return "", fmt.Errorf("sandbox %s: port %d is not published; create it with this port, or update its ports", s.Name(), port)
}

// Refresh asks the server for the present state.
func (s *Sandbox) Refresh(ctx context.Context) error {
	out, err := s.c.fetchSandbox(ctx, s.Name(), false)
	if err != nil {
		return wrap(err, "get sandbox %s", s.Name())
	}
	s.set(out)
	return nil
}

func (s *Sandbox) set(a api.SandboxAndSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandbox, s.session, s.routes = a.Sandbox, a.Session, a.Routes
}

func (s *Sandbox) setSession(session api.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session.ID == session.ID {
		s.session = session
	}
}

// Update changes the fields of the sandbox that req has.
func (s *Sandbox) Update(ctx context.Context, req api.UpdateSandboxRequest) error {
	var out api.SandboxAndRoutes
	r := request{method: http.MethodPatch, path: sandboxPath(s.Name()), json: req, repeatable: true}
	if err := s.c.call(ctx, r, &out); err != nil {
		return wrap(err, "update sandbox %s", s.Name())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandbox, s.routes = out.Sandbox, out.Routes
	return nil
}

// Delete stops and removes the sandbox; its snapshots stay.
func (s *Sandbox) Delete(ctx context.Context) error {
	return s.c.DeleteSandbox(ctx, s.Name(), false)
}

// Stop ends the current session. The file system of a persistent sandbox is
// kept. Stopping what has stopped is no error.
func (s *Sandbox) Stop(ctx context.Context) (api.StopSessionResponse, error) {
	var out api.StopSessionResponse
	r := request{method: http.MethodPost, path: sessionPath(s.Session().ID, "stop"), repeatable: true}
	if err := s.c.call(ctx, r, &out); err != nil {
		return out, wrap(err, "stop sandbox %s", s.Name())
	}
	s.setSession(out.Session)
	if out.Sandbox != nil {
		s.mu.Lock()
		s.sandbox = *out.Sandbox
		s.mu.Unlock()
	}
	return out, nil
}

// ExtendTimeout lets the running session live longer by d.
func (s *Sandbox) ExtendTimeout(ctx context.Context, d time.Duration) error {
	err := s.withSession(ctx, func(session api.Session) error {
		var out api.SessionResponse
		req := api.ExtendTimeoutRequest{Duration: api.IntOf(d.Milliseconds())}
		r := request{method: http.MethodPost, path: sessionPath(session.ID, "extend-timeout"), json: req}
		if err := s.c.call(ctx, r, &out); err != nil {
			return err
		}
		s.setSession(out.Session)
		return nil
	})
	return wrap(err, "extend the timeout of sandbox %s", s.Name())
}

// SetNetworkPolicy replaces the network policy of the running session.
func (s *Sandbox) SetNetworkPolicy(ctx context.Context, policy api.NetworkPolicy) error {
	err := s.withSession(ctx, func(session api.Session) error {
		var out api.SessionResponse
		r := request{method: http.MethodPost, path: sessionPath(session.ID, "network-policy"), json: policy, repeatable: true}
		if err := s.c.call(ctx, r, &out); err != nil {
			return err
		}
		s.setSession(out.Session)
		return nil
	})
	return wrap(err, "set the network policy of sandbox %s", s.Name())
}

// withSession calls f with the current session and, if that turns out to be
// over, once more with a new one.
func (s *Sandbox) withSession(ctx context.Context, f func(api.Session) error) error {
	session := s.Session()
	err := f(session)
	if !isSessionOver(err) {
		return err
	}
	if resumeErr := s.resume(ctx, session.ID); resumeErr != nil {
		return resumeErr
	}
	return f(s.Session())
}

// resume replaces the session of that id by a running one; of many callers
// at once the first does it for all.
func (s *Sandbox) resume(ctx context.Context, over string) error {
	s.resumeMu.Lock()
	defer s.resumeMu.Unlock()
	if s.Session().ID != over {
		return nil
	}
	out, err := s.c.fetchSandbox(ctx, s.Name(), true)
	if err != nil {
		return wrap(err, "resume")
	}
	s.set(out)
	return nil
}

func isSessionOver(err error) bool {
	switch errorCode(err) {
	case api.CodeSandboxStopped, api.CodeSandboxStopping, api.CodeSandboxSnapshotting:
		return true
	}
	return false
}
