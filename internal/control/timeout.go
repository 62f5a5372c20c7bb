package control

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

// setDeadline arms the timer that ends the session. Held: mu.
func (s *session) setDeadline(at time.Time) {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.deadline = at
	s.timer = s.c.clock.AfterFunc(at.Sub(s.c.clock.Now()), s.timeUp)
}

// ExtendTimeout gives a running session more time, in milliseconds.
func (p *Project) ExtendTimeout(ctx context.Context, id string, duration api.Int) (*api.Session, error) {
	s, err := p.running(ctx, id)
	if err != nil {
		return nil, err
	}
	more, set := duration.Get()
	if least := api.MinTimeout.Milliseconds(); !set || more < least {
		return nil, api.Errorf(api.CodeTimeoutInvalid, "field duration: must be at least %d ms", least)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return nil, stopping(id)
	}
	if most := p.c.cfg.Limits.MaxTimeout.Milliseconds(); more > most-s.rec.Timeout {
		return nil, api.Errorf(api.CodeTimeoutInvalid, "field duration: %d ms is too long; the session has %d of at most %d already", more, s.rec.Timeout, most)
	}
	old := s.rec.Timeout
	s.rec.Timeout += more
	if err := s.save(ctx); err != nil {
		s.rec.Timeout = old
		return nil, internal("extend session "+id, err)
	}
	s.setDeadline(s.deadline.Add(api.Milliseconds(more)))
	view := sessionView(s.rec)
	return &view, nil
}
