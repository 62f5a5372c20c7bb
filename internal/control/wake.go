package control

import (
	"context"
	"crypto/subtle"
	"errors"
	"syscall"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

const (
	// wakeTimeout bounds how long a request waits for a sandbox that it woke
	// to listen; a start command may install things first.
	wakeTimeout = 60 * time.Second
	wakePoll    = 100 * time.Millisecond
)

// validateWake checks the field __wakeOnRequest.
func validateWake(wake, persistent bool) error {
	if wake && !persistent {
		return api.BadRequest("field __wakeOnRequest: only a persistent sandbox can be started again; set persistent, or leave this out")
	}
	return nil
}

// runStartCommand begins a session with the command that its sandbox wants,
// which is a command as any other. That it cannot be started is told by the
// session's notice: the sandbox is of use without it.
func (s *session) runStartCommand(ctx context.Context) {
	if s.startCommand == nil {
		return
	}
	_, err := s.runCommand(ctx, s.startCommand.Request(), 0, nil)
	if err == nil || s.usable() != nil {
		return
	}
	s.c.log.Warn("run start command", "session", s.id, "err", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.Notice = "its start command could not be run: " + err.Error()
	if err := s.save(ctx); err != nil {
		s.c.log.Error("record session", "session", s.id, "err", err)
	}
}

// admits tells whether a token is the one of a hash; nil for no hash.
func admits(want *store.TokenHash) func(token string) bool {
	if want == nil {
		return nil
	}
	hash := *want
	return func(token string) bool {
		got := store.HashToken(token)
		return subtle.ConstantTimeCompare(got[:], hash[:]) == 1
	}
}

// wake starts a stopped sandbox for a request to one of its previews, and
// waits until something listens there where the sandbox has a start command.
// One session serves all who wait.
func (c *Control) wake(ctx context.Context, sb store.Sandbox, subdomain string) (Route, error) {
	p, err := c.Project(ctx, sb.Project)
	if err != nil {
		return Route{}, err
	}
	if _, err := p.GetSandbox(ctx, sb.Name, true); err != nil {
		return Route{}, err
	}
	r, err := c.Route(ctx, subdomain)
	if err != nil || r.State != RouteRunning || sb.StartCommand == nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	for {
		conn, err := r.Dial(ctx)
		if err == nil {
			conn.Close() //nolint:errcheck // it has served its purpose
			return r, nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return r, nil // the request itself will tell
		}
		select {
		case <-c.after(wakePoll):
		case <-r.Done:
			return r, nil
		case <-ctx.Done():
			return r, nil
		}
	}
}
