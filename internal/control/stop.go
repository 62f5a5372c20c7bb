package control

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// StopSession ends a session and answers when nothing of it runs any more. It
// never starts one; a session that is over is answered as it is.
func (p *Project) StopSession(ctx context.Context, id string) (*api.StopSessionResponse, error) {
	s, rec, err := p.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if s != nil {
		s.stop("")
		if rec, err = s.wait(ctx); err != nil {
			return nil, err
		}
	}
	out := &api.StopSessionResponse{Session: sessionView(rec)}
	if sb, err := p.c.store.SandboxByID(ctx, rec.SandboxID); err == nil {
		view := p.c.sandboxView(sb)
		out.Sandbox = &view
	}
	return out, nil
}

// wait returns the record of the session once it is over.
func (s *session) wait(ctx context.Context) (store.Session, error) {
	select {
	case <-s.done:
		return s.record(), nil
	case <-ctx.Done():
		return store.Session{}, ctx.Err()
	}
}

// stop begins to end the session, for a reason that its record tells ("" for
// the user's wish), and returns at once. A second call does nothing.
func (s *session) stop(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginStop(api.StatusStopped, reason)
}

// timeUp is what the timer calls.
func (s *session) timeUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c.clock.Now().Before(s.deadline) {
		return // it was extended just now
	}
	s.beginStop(api.StatusStopped, "its time was up")
}

// lost is called when the machine has ended.
func (s *session) lost(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending {
		s.beginStop(api.StatusFailed, reasonOf(why, s.rec.VCPUs*api.MemoryPerVCPU))
	}
}

// beginStop takes the session to stopping. Held: mu.
func (s *session) beginStop(final api.SessionStatus, reason string) {
	if s.ending {
		return
	}
	s.ending = true
	s.rec.RequestedStopAt = s.c.now()
	if s.machine == nil {
		s.giveUp() // start sees it and cleans up
		return
	}
	s.rec.Status, s.rec.Reason = api.StatusStopping, reason
	s.timer.Stop()
	if err := s.save(s.ctx); err != nil {
		s.c.log.Error("record session", "session", s.id, "err", err)
	}
	m := s.machine
	s.c.wg.Go(func() { s.finish(m, final) })
}

const (
	// usageTimeout bounds the last measurement of a machine.
	usageTimeout = 2 * time.Second
	// stopGrace is what a machine gets beyond node.StopTimeout, so that its
	// own, better error comes first.
	stopGrace = 2 * time.Second
)

// finish ends the machine of a session that is stopping, closes what hangs on
// it and records the end. Keeping the disk has its place between the
// measurement and the machine's end.
func (s *session) finish(m node.Machine, final api.SessionStatus) {
	usage := s.measure(m)
	ctx, cancel := context.WithTimeout(context.Background(), node.StopTimeout+stopGrace)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		s.c.log.Error("end machine", "session", s.id, "err", err)
		final = api.StatusFailed
		s.mu.Lock()
		s.rec.Reason = "its machine could not be ended cleanly: " + err.Error()
		s.mu.Unlock()
	}
	s.cancel()
	s.wg.Wait() // every command has its exit code
	s.mu.Lock()
	now := s.c.now()
	s.rec.Status, s.rec.StoppedAt = final, now
	usage.DurationMs = max(0, now-s.rec.StartedAt)
	s.rec.Usage = &usage
	if err := s.save(ctx); err != nil {
		s.c.log.Error("record session", "session", s.id, "err", err)
	}
	s.c.log.Info("session ended", "session", s.id, "status", final, "reason", s.rec.Reason, "durationMs", usage.DurationMs)
	s.mu.Unlock()
	s.over()
}

// measure reads the usage of a machine that is about to end, or has.
func (s *session) measure(m node.Machine) store.Usage {
	ctx, cancel := context.WithTimeout(s.ctx, usageTimeout)
	defer cancel()
	u, err := m.Usage(ctx)
	if err != nil {
		s.c.log.Warn("measure machine at its end", "session", s.id, "err", err)
	}
	return store.Usage{EgressBytes: u.EgressBytes, IngressBytes: u.IngressBytes, CPUMs: u.CPU.Milliseconds()}
}
