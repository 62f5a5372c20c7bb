// Package fakecontrol is a control plane for tests of the server and of the
// clients: sandboxes are entries in memory, and commands are Go functions.
// Ids, names and times count up from 1, so that answers can be compared.
package fakecontrol

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/server"
)

// Tokens that the fake knows.
const (
	RootToken  = "root-token" // any project
	AlphaToken = "alpha-token"
	BetaToken  = "beta-token"
)

// Epoch is the time of everything, in milliseconds.
const Epoch = 1_700_000_000_000

// Control implements server.Control.
type Control struct {
	mu          sync.Mutex
	calls       map[string]int // what was carried out, by method name
	next        map[string]int // the last number of each prefix
	projects    map[string]*Project
	owners      map[string]string // session or snapshot id → project
	interactive map[string][2]string
	commands    map[string]Program

	running sync.WaitGroup // of commands
}

// New returns an empty control plane that knows the programs of Programs.
func New() *Control {
	return &Control{
		calls: map[string]int{}, next: map[string]int{},
		projects: map[string]*Project{}, owners: map[string]string{},
		interactive: map[string][2]string{}, commands: Programs(),
	}
}

// Close kills every command and waits for that.
func (c *Control) Close() {
	c.mu.Lock()
	projects := slices.Collect(maps.Values(c.projects))
	c.mu.Unlock()
	for _, p := range projects {
		p.mu.Lock()
		for _, b := range p.sandboxes {
			for _, s := range b.sessions {
				s.stop()
			}
		}
		p.mu.Unlock()
	}
	c.running.Wait()
}

// Calls returns how often a method was carried out.
func (c *Control) Calls(method string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[method]
}

func (c *Control) count(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[method]++
}

func (c *Control) id(prefix string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next[prefix]++
	return fmt.Sprintf("%s%d", prefix, c.next[prefix])
}

// Authenticate knows the three tokens.
func (c *Control) Authenticate(_ context.Context, token string) (api.Identity, error) {
	switch token {
	case RootToken:
		return api.Identity{}, nil
	case AlphaToken, BetaToken:
		return api.Identity{Project: strings.TrimSuffix(token, "-token")}, nil
	}
	return api.Identity{}, api.Errorf(api.CodeUnauthorized, "the token is not known here")
}

// Project makes it on first use.
func (c *Control) Project(_ context.Context, name string) (server.Project, error) {
	if err := api.ValidateName("project", name); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.projects[name]
	if p == nil {
		p = &Project{c: c, name: name, sandboxes: map[string]*sandbox{}, snapshots: map[string]*api.Snapshot{}, drives: map[string]*api.Drive{}, keys: map[string]any{}}
		c.projects[name] = p
	}
	return p, nil
}

// ProjectOf finds the project of a session or snapshot.
func (c *Control) ProjectOf(_ context.Context, id string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name, ok := c.owners[id]; ok {
		return name, nil
	}
	kind := "session"
	if strings.HasPrefix(id, api.SnapshotPrefix) {
		kind = "snapshot"
	}
	return "", api.NotFound(kind, id)
}

// RedeemInteractive works once a token.
func (c *Control) RedeemInteractive(_ context.Context, token string) (string, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	where, ok := c.interactive[token]
	if !ok {
		return "", "", api.Errorf(api.CodeUnauthorized, "the token is not known or was used")
	}
	delete(c.interactive, token)
	return where[0], where[1], nil
}

// DiskUse is of one image.
func (c *Control) DiskUse(context.Context) (api.DiskUse, error) {
	return api.DiskUse{Kinds: []api.DiskKind{{Kind: api.DiskImages, Count: 1, Bytes: 4096}}, FreeBytes: 8192}, nil
}

// Prune finds one layer.
func (c *Control) Prune(context.Context, api.PruneRequest) (api.PruneResponse, error) {
	return api.PruneResponse{Removed: []api.Pruned{{Kind: api.DiskLayers, Name: "sha256:0", Bytes: 4096}}, FreedBytes: 4096}, nil
}

// Status is constant.
func (c *Control) Status(context.Context) api.Status {
	return api.Status{Version: "test", Driver: "fake", StartedAt: Epoch, Pool: []api.PoolStatus{}}
}
