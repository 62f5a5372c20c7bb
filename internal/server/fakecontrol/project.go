package fakecontrol

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/api"
)

// Project implements server.Project. A sandbox has one session at a time;
// every sandbox is persistent unless it says otherwise.
type Project struct {
	c    *Control
	name string

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	snapshots map[string]*api.Snapshot // by id
	drives    map[string]*api.Drive    // by name
	keys      map[string]any           // answers by idempotency key
}

type sandbox struct {
	info     api.Sandbox
	sessions []*session
}

type session struct {
	info     api.Session
	commands []*command
	files    map[string][]byte
	dirs     map[string]bool
}

func (b *sandbox) current() *session { return b.sessions[len(b.sessions)-1] }

func (b *sandbox) answer(resumed bool) *api.SandboxAndSession {
	info := b.info
	info.Status, info.CurrentSessionID = b.current().info.Status, b.current().info.ID
	return &api.SandboxAndSession{Sandbox: info, Session: b.current().info, Routes: b.routes(), Resumed: resumed}
}

func (b *sandbox) routes() []api.Route {
	return []api.Route{{URL: "http://sb-1.localhost:7070", Subdomain: "sb-1", Port: 3000}}
}

// CreateSandbox fails for the names "broken" (an unknown error), "panic" and
// "busy" (429).
func (p *Project) CreateSandbox(ctx context.Context, req api.CreateSandboxRequest, key string) (*api.SandboxAndSession, error) {
	switch req.Name {
	case "broken":
		return nil, errBroken
	case "panic":
		panic("a bug")
	case "busy":
		return nil, api.Errorf(api.CodeRateLimited, "no capacity is left; stop a sandbox or try again")
	}
	if _, err := api.DefaultLimits().ValidateTimeout("timeout", req.Timeout); err != nil {
		return nil, err
	}
	if _, err := api.ValidatePorts(req.Ports); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, ok := p.keys[key].(*api.SandboxAndSession); ok && key != "" {
		return old, nil
	}
	if req.Name == "" {
		req.Name = p.c.id("sandbox-")
	}
	if p.sandboxes[req.Name] != nil {
		return nil, api.BadRequest("field name: %q already exists", req.Name)
	}
	p.c.count("CreateSandbox")
	b := &sandbox{info: api.Sandbox{
		Name: req.Name, Persistent: req.Persistent == nil || *req.Persistent, Region: api.DefaultRegion, VCPUs: 2, Memory: 4096,
		Timeout: req.Timeout.Or(300_000), CreatedAt: Epoch, UpdatedAt: Epoch, StatusUpdatedAt: Epoch,
		NetworkPolicy: req.NetworkPolicy.View(), Tags: req.Tags, Cwd: "/vercel/sandbox",
	}}
	b.sessions = append(b.sessions, p.newSession(b))
	p.sandboxes[req.Name] = b
	p.keys[key] = b.answer(false)
	return b.answer(false), nil
}

func (p *Project) newSession(b *sandbox) *session {
	id := p.c.id(api.SessionPrefix)
	p.c.mu.Lock()
	p.c.owners[id] = p.name
	p.c.mu.Unlock()
	return &session{
		info: api.Session{
			ID: id, SandboxName: b.info.Name, Memory: 4096, VCPUs: 2, Region: api.DefaultRegion, Timeout: b.info.Timeout,
			Status: api.StatusRunning, RequestedAt: Epoch, StartedAt: Epoch, CreatedAt: Epoch, UpdatedAt: Epoch,
			Cwd: b.info.Cwd, NetworkPolicy: b.info.NetworkPolicy, InteractivePort: api.ReservedPort,
		},
		files: map[string][]byte{"/etc/hostname": []byte("fake\n")}, dirs: map[string]bool{"/": true},
	}
}

// GetSandbox resumes a persistent sandbox.
func (p *Project) GetSandbox(_ context.Context, name string, resume bool) (*api.SandboxAndSession, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.sandboxes[name]
	if b == nil {
		return nil, api.NotFound("sandbox", name)
	}
	if !resume || !b.current().info.Status.Over() {
		return b.answer(false), nil
	}
	if !b.info.Persistent {
		return nil, api.Errorf(api.CodeSandboxStopped, "sandbox %q is not persistent and cannot be resumed; create another", name)
	}
	p.c.count("Resume")
	files := b.current().files
	b.sessions = append(b.sessions, p.newSession(b))
	b.current().files = files
	return b.answer(true), nil
}

// ListSandboxes sorts by name; a cursor is the last name before the page.
func (p *Project) ListSandboxes(_ context.Context, q api.ListSandboxesQuery) (*api.SandboxesPage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	page := &api.SandboxesPage{Sandboxes: []api.Sandbox{}}
	for _, name := range slices.Sorted(maps.Keys(p.sandboxes)) {
		if name <= q.Cursor || !strings.HasPrefix(name, q.NamePrefix) {
			continue
		}
		if len(page.Sandboxes) == q.Limit {
			page.Pagination.Next = &page.Sandboxes[q.Limit-1].Name
			break
		}
		page.Sandboxes = append(page.Sandboxes, p.sandboxes[name].answer(false).Sandbox)
	}
	page.Pagination.Count = len(page.Sandboxes)
	return page, nil
}

// UpdateSandbox changes time-out and tags.
func (p *Project) UpdateSandbox(_ context.Context, name string, req api.UpdateSandboxRequest) (*api.SandboxAndRoutes, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.sandboxes[name]
	if b == nil {
		return nil, api.NotFound("sandbox", name)
	}
	b.info.Timeout = req.Timeout.Or(b.info.Timeout)
	if req.Tags != nil {
		b.info.Tags = *req.Tags
	}
	return &api.SandboxAndRoutes{Sandbox: b.answer(false).Sandbox, Routes: b.routes()}, nil
}

// DeleteSandbox removes it.
func (p *Project) DeleteSandbox(_ context.Context, name string, _ bool) (*api.SandboxAndRoutes, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.sandboxes[name]
	if b == nil {
		return nil, api.NotFound("sandbox", name)
	}
	b.current().stop()
	delete(p.sandboxes, name)
	return &api.SandboxAndRoutes{Sandbox: b.answer(false).Sandbox, Routes: []api.Route{}}, nil
}

// session finds a session; with running it must run.
func (p *Project) session(id string, running bool) (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.sandboxes {
		for _, s := range b.sessions {
			if s.info.ID != id {
				continue
			}
			if running && s.info.Status.Over() {
				return nil, api.Errorf(api.CodeSandboxStopped, "session %s is over; get the sandbox with resume=true", id)
			}
			return s, nil
		}
	}
	return nil, api.NotFound("session", id)
}

// GetSession finds it, stopped or not.
func (p *Project) GetSession(_ context.Context, id string) (*api.SessionAndRoutes, error) {
	s, err := p.session(id, false)
	if err != nil {
		return nil, err
	}
	return &api.SessionAndRoutes{Session: s.info, Routes: []api.Route{}}, nil
}

// ListSessions is one page.
func (p *Project) ListSessions(_ context.Context, q api.ListSessionsQuery) (*api.SessionsPage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	page := &api.SessionsPage{Sessions: []api.Session{}}
	for _, name := range slices.Sorted(maps.Keys(p.sandboxes)) {
		if q.Name != "" && q.Name != name {
			continue
		}
		for _, s := range p.sandboxes[name].sessions {
			page.Sessions = append(page.Sessions, s.info)
		}
	}
	page.Pagination.Count = len(page.Sessions)
	return page, nil
}

// StopSession kills the session's commands.
func (p *Project) StopSession(_ context.Context, id string) (*api.StopSessionResponse, error) {
	s, err := p.session(id, false)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.stop()
	b := p.sandboxes[s.info.SandboxName].answer(false).Sandbox
	return &api.StopSessionResponse{Session: s.info, Sandbox: &b}, nil
}

func (s *session) stop() {
	s.info.Status, s.info.StoppedAt = api.StatusStopped, Epoch
	for _, c := range s.commands {
		c.kill(9)
	}
}

// ExtendTimeout adds.
func (p *Project) ExtendTimeout(_ context.Context, id string, ms api.Int) (*api.Session, error) {
	s, err := p.session(id, true)
	if err != nil {
		return nil, err
	}
	if ms.Or(0) < 1000 {
		return nil, api.Errorf(api.CodeTimeoutInvalid, "field duration: must be at least 1000")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.c.count("ExtendTimeout")
	s.info.Timeout += ms.Or(0)
	info := s.info
	return &info, nil
}

// SetNetworkPolicy replaces it.
func (p *Project) SetNetworkPolicy(_ context.Context, id string, policy api.NetworkPolicy) (*api.Session, error) {
	s, err := p.session(id, true)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.info.NetworkPolicy = policy.View()
	info := s.info
	return &info, nil
}
