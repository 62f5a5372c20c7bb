// Package control knows the life of sandboxes, sessions and commands: what
// may happen in which state, what is recorded, when a time-out ends it, who
// may see it. It runs machines through package node and keeps records in
// package store; it knows nothing of HTTP.
//
// Every error that a client may see is an *api.Error. All calls are scoped by
// project, and what belongs to another project reads as if it never existed.
//
// Locks, in the order in which they may be taken: Control.expiryMu or .mergeMu,
// .layersMu, .timersMu, Control.mu, session.mu, command.mu, commandLog.mu.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/scratch"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Images finds what a sandbox starts from.
type Images interface {
	// Resolve returns the image of a reference; "" is the default image. An
	// *api.Error reaches the client as it is, any other error as a bad image
	// field.
	Resolve(ctx context.Context, reference string) (image.Image, error)
}

// Config of a Control. It owns Store and Node from New on and closes them.
type Config struct {
	Store  store.Store
	Node   node.Node
	Images Images
	Logger *slog.Logger
	Clock  Clock      // nil: the host's
	Limits api.Limits // zero: api.DefaultLimits, bounded by the node
	// LogDir holds the output of commands: SESSION/COMMAND.log.
	LogDir string
	// PreviewURL makes the address of a subdomain.
	PreviewURL func(subdomain string) string
	// TakeOver has Recover take over the sessions that a dead server left
	// running; else they are ended.
	TakeOver bool
	// RootToken may use any project; "" for none.
	RootToken string
	// Reserve of the host's disk, which only the disks of sessions that end
	// may touch; nil for none.
	Reserve *scratch.Reserve
	Version string
}

// Control is the control plane of one node. Safe for concurrent use.
type Control struct {
	cfg     Config
	log     *slog.Logger
	clock   Clock
	store   store.Store
	node    node.Node
	root    store.TokenHash
	started time.Time

	wg     sync.WaitGroup  // everything that runs in the background
	ctx    context.Context // ends when the server shuts down
	cancel context.CancelFunc

	// layersMu is held for reading while a session that starts from layers is
	// made live, and for writing while those that nothing needs are removed.
	layersMu sync.RWMutex
	pruning  atomic.Bool // a removal waits to begin
	mergeMu  sync.Mutex  // held while layers are merged: one merge at a time
	expiryMu sync.Mutex  // held while snapshots expire
	networks networks
	timersMu sync.Mutex // guards what follows
	expiry   Timer      // for the next snapshot to expire, or nil
	again    Timer      // for another look for layers that nothing needs, or nil

	mu        sync.Mutex // guards what follows
	closing   bool
	projects  map[string]bool        // known to exist
	live      map[string]*session    // by id, from request to end
	bySandbox map[string]*session    // by sandbox id, the same
	routes    map[string]routeTarget // by subdomain, of live sessions
	inflight  map[inflightKey]chan struct{}
	tokens    map[store.TokenHash]interactiveToken
}

// New checks cfg and makes a Control; call Recover before anything else.
func New(cfg Config) (*Control, error) {
	if cfg.Store == nil || cfg.Node == nil || cfg.Images == nil || cfg.PreviewURL == nil || cfg.LogDir == "" {
		return nil, errors.New("control: Store, Node, Images, PreviewURL and LogDir must be set")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Clock == nil {
		cfg.Clock = realClock{}
	}
	if cfg.Limits == (api.Limits{}) {
		cfg.Limits = api.DefaultLimits()
		cfg.Limits.MaxVCPUs = cfg.Node.Capacity().MaxVCPUs
	}
	cfg.Limits.MaxVCPUs = min(cfg.Limits.MaxVCPUs, cfg.Node.Capacity().MaxVCPUs)
	if err := os.MkdirAll(cfg.LogDir, 0o700); err != nil {
		return nil, fmt.Errorf("make log directory: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Control{
		ctx: ctx, cancel: cancel,
		cfg: cfg, log: cfg.Logger, clock: cfg.Clock, store: cfg.Store, node: cfg.Node,
		root: store.HashToken(cfg.RootToken), started: cfg.Clock.Now(),
		projects: map[string]bool{}, live: map[string]*session{}, bySandbox: map[string]*session{},
		routes: map[string]routeTarget{}, inflight: map[inflightKey]chan struct{}{}, tokens: map[store.TokenHash]interactiveToken{},
	}, nil
}

// Limits in force.
func (c *Control) Limits() api.Limits { return c.cfg.Limits }

// now in milliseconds since 1970.
func (c *Control) now() int64 { return c.clock.Now().UnixMilli() }

// Status tells what runs.
func (c *Control) Status(context.Context) api.Status {
	c.mu.Lock()
	running := len(c.live)
	c.mu.Unlock()
	n := c.node.Status()
	st := api.Status{
		Version: c.cfg.Version, Driver: n.Driver, StartedAt: c.started.UnixMilli(),
		RunningSessions: running, Machines: n.Running,
		MemoryCommittedBytes: n.MemoryCommitted, MemoryLimitBytes: n.MemoryLimit,
		Pool: []api.PoolStatus{},
	}
	for _, p := range n.Pool {
		st.Pool = append(st.Pool, api.PoolStatus{
			Image: p.Image, VCPUs: p.VCPUs, MemoryBytes: p.MemoryBytes,
			Ready: p.Ready, Starting: p.Starting, Target: p.Target, Hits: p.Hits, Misses: p.Misses,
		})
	}
	return st
}

// Close stops all sessions, which ends the commands, streams and terminals in
// them and keeps the disks of persistent sandboxes, waits for that, and closes node and store. New sandboxes are refused
// from now on. Where ctx ends first it returns its error, and the next
// Recover finds what is left.
func (c *Control) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closing = true
	all := make([]*session, 0, len(c.live))
	for _, s := range c.live {
		all = append(all, s)
	}
	c.mu.Unlock()
	c.cancel()
	for _, s := range all {
		s.stop("the server shut down")
	}
	var errs []error
	for _, s := range all {
		select {
		case <-s.done:
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("stop session %s: %w", s.id, ctx.Err()))
		}
	}
	if len(errs) == 0 {
		c.wg.Wait()
	}
	c.timersMu.Lock()
	for _, t := range []Timer{c.expiry, c.again} {
		if t != nil {
			t.Stop()
		}
	}
	c.timersMu.Unlock()
	errs = append(errs, c.node.Close(ctx), c.store.Close())
	return errors.Join(errs...)
}

// register makes s live, unless the server shuts down or another session
// writes to one of its drives.
func (c *Control) register(s *session) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return &api.Error{Code: api.CodeUnavailable, Message: "the server is shutting down; try again", RetryAfter: time.Second}
	}
	if err := c.writable(s); err != nil {
		return err
	}
	c.live[s.id], c.bySandbox[s.sandboxID] = s, s
	return nil
}

// forget takes s, which is over and recorded as such, out of the live ones.
func (c *Control) forget(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.live, s.id)
	if c.bySandbox[s.sandboxID] == s {
		delete(c.bySandbox, s.sandboxID)
	}
	c.dropRoutes(s)
}

// liveSession returns the session if it is live and project's, or nil.
func (c *Control) liveSession(project, id string) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.live[id]; s != nil && s.project == project {
		return s
	}
	return nil
}

// sessionOf returns the live session of a sandbox, or nil.
func (c *Control) sessionOf(sandboxID string) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bySandbox[sandboxID]
}

// internal makes an error of the server's own, which is logged where it is
// told; one of a full disk is for the client.
func internal(op string, err error) error {
	if full, ok := errors.AsType[*scratch.ErrReserve](err); ok {
		return noRoom(op, full)
	}
	return fmt.Errorf("%s: %w", op, err)
}

func noRoom(op string, full *scratch.ErrReserve) error {
	return api.Errorf(api.CodeInsufficientStorage, "%s: %v", op, full)
}

// room refuses op where it would touch the host's reserve.
func (c *Control) room(op string) error {
	err := c.cfg.Reserve.Check()
	if err != nil {
		return internal(op, err)
	}
	return nil
}
