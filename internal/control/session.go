package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// session is a session from its request to its end.
//
// Life cycle: pending (start runs) → running → stopping (finish runs) → over;
// or pending → over, where the start fails or is given up. started is closed
// when pending ends, done when it is over and recorded as such.
type session struct {
	c                      *Control
	id, project, sandboxID string
	image                  image.Image
	layers                 []image.Layer // of the snapshot that it starts from, on top of the image's
	drives                 []attached
	env                    map[string]string // of the create call
	undo                   func()            // of what was recorded, where it does not start; may be nil
	started, done          chan struct{}

	// ctx ends when the session does: what runs for it in the background.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // pumps

	startCommand *api.StartCommand // nil: none

	previewToken *store.TokenHash // guarded by Control.mu

	policyMu sync.Mutex // held while the policy is replaced; before mu
	saving   sync.Mutex // held while the disk is saved; before mu

	mu       sync.Mutex // guards what follows
	rec      store.Session
	machine  node.Machine // nil until running
	giveUp   context.CancelFunc
	ending   bool
	discard  bool         // its disk is not kept
	ask      *snapshotAsk // while a snapshot is taken that somebody asked for
	stopNext *string      // with ask: the reason to stop also if that fails
	startErr error        // why it did not start, once started is closed
	deadline time.Time
	timer    Timer
	commands map[string]*command // those that run
}

func (c *Control) newSession(rec store.Session, img image.Image, spec store.SandboxSpec) *session {
	ctx, cancel := context.WithCancel(context.Background())
	return &session{
		c: c, id: rec.ID, project: rec.Project, sandboxID: rec.SandboxID, image: img, env: maps.Clone(spec.Env), previewToken: spec.PreviewToken, startCommand: spec.StartCommand,
		started: make(chan struct{}), done: make(chan struct{}), ctx: ctx, cancel: cancel,
		rec: rec, giveUp: func() {}, commands: map[string]*command{},
	}
}

// record returns the session as it is now.
func (s *session) record() store.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec
}

// save stores the record. What cannot be stored is logged: the session goes
// on, and a restart of the server would find an older state. Held: mu.
func (s *session) save(ctx context.Context) error {
	s.rec.UpdatedAt = s.c.now()
	return s.c.store.UpdateSession(context.WithoutCancel(ctx), s.rec)
}

// find returns a session of the project: live, or else its record.
func (p *Project) find(ctx context.Context, id string) (*session, store.Session, error) {
	if s := p.c.liveSession(p.name, id); s != nil {
		return s, s.record(), nil
	}
	rec, err := p.c.store.Session(ctx, p.name, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, rec, api.NotFound("session", id)
	}
	return nil, rec, err
}

// running returns a session that can be used now, or the error that says why
// not. One that is about to start is waited for.
func (p *Project) running(ctx context.Context, id string) (*session, error) {
	s, rec, err := p.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, gone(rec)
	}
	select {
	case <-s.started:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s, s.usable()
}

// usable tells whether the session takes calls.
func (s *session) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usableNow()
}

// usableNow is usable. Held: mu.
func (s *session) usableNow() error {
	switch s.rec.Status {
	case api.StatusRunning:
		return nil
	case api.StatusStopping:
		return stopping(s.id)
	case api.StatusSnapshotting:
		return api.Errorf(api.CodeSandboxSnapshotting, "session %s is taking a snapshot and stops with it; get the sandbox with resume=true, which waits for that", s.id)
	}
	return gone(s.rec)
}

func stopping(id string) error {
	return api.Errorf(api.CodeSandboxStopping, "session %s is stopping; get the sandbox with resume=true, which waits for that", id)
}

// gone is the error of every use of a session that is over.
func gone(rec store.Session) error {
	why := ""
	if rec.Reason != "" {
		why = " (" + rec.Reason + ")"
	}
	return api.Errorf(api.CodeSandboxStopped, "session %s has ended%s; get sandbox %q with resume=true for a new session", rec.ID, why, rec.SandboxName)
}

// machineError turns an error of the machine into what a client sees, where
// it came because the session ended; other errors are wrapped with op.
func (s *session) machineError(ctx context.Context, m node.Machine, op string, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return ctx.Err()
	}
	if !s.c.hasEnded(m, err) {
		return internal(op+" in session "+s.id, err)
	}
	select { // for the reason
	case <-s.done:
	case <-ctx.Done():
	case <-s.c.after(time.Second):
	}
	if err := s.usable(); err != nil {
		return err
	}
	return api.Errorf(api.CodeSandboxStopped, "session %s lost its machine", s.id)
}

// hasEnded tells whether err of a call on m came because m has ended. A lost
// connection to the agent mostly means that, and the end shows a little later.
func (c *Control) hasEnded(m node.Machine, err error) bool {
	if errors.Is(err, driver.ErrStopped) {
		return true
	}
	if errors.Is(err, guest.ErrClosed) {
		select {
		case <-m.Done():
		case <-c.after(time.Second):
		}
	}
	select {
	case <-m.Done():
		return true
	default:
		return false
	}
}

// after is closed d from now.
func (c *Control) after(d time.Duration) <-chan struct{} {
	ch := make(chan struct{})
	c.clock.AfterFunc(d, func() { close(ch) })
	return ch
}

// reasonOf says in words why a machine ended that nobody stopped.
func reasonOf(err error, memoryMB int) string {
	switch {
	case errors.Is(err, driver.ErrOutOfMemory):
		return fmt.Sprintf("out of memory: its processes used more than the %d MB of the sandbox; give it more resources.vcpus (%d MB each)", memoryMB, api.MemoryPerVCPU)
	case err == nil || errors.Is(err, driver.ErrStopped):
		return "its machine was ended from outside"
	}
	return "its machine ended by itself: " + err.Error()
}
