package control

import (
	"context"
	"maps"
	"slices"
	"sync"
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
	if rec.KeptSnapshotID != "" {
		if sn, err := p.c.store.Snapshot(ctx, p.name, rec.KeptSnapshotID); err == nil {
			view := p.c.snapshotView(sn)
			out.Snapshot = &view
		}
	}
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
		if s.ask != nil && final == api.StatusStopped {
			s.stopNext = &reason // for when the snapshot fails
		}
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
	s.c.wg.Go(func() { s.finish(m, final, nil) })
}

const (
	// commandGrace bounds the end of the commands of a session that stops.
	commandGrace = time.Second
	// usageTimeout bounds the last measurement of a machine.
	usageTimeout = 2 * time.Second
	// stopGrace is what a machine gets beyond node.StopTimeout, so that its
	// own, better error comes first.
	stopGrace = 2 * time.Second
)

// finish ends the machine of a session that is stopping, keeps its disk where
// that is to last, closes what hangs on it and records the end. ask is the
// call for a snapshot that it ends for, or nil.
func (s *session) finish(m node.Machine, final api.SessionStatus, ask *snapshotAsk) {
	s.endCommands(m)
	usage := s.measure(m)
	var kept *store.Kept
	var states []store.DriveState
	if final == api.StatusStopped { // else there is no machine to keep anything of
		var err error
		if kept, states, err = s.keep(m, ask); err != nil {
			s.c.log.Error("keep disk", "session", s.id, "sandbox", s.sandboxID, "err", err)
			if ask != nil && s.goOn(m) {
				ask.answer(store.Snapshot{}, internal("take a snapshot of session "+s.id, err))
				return
			}
			final = s.diskLost(m, err)
		}
	}
	final = s.endMachine(m, final)
	s.keepNetwork(m, &usage)
	s.cancel()
	s.wg.Wait() // every command has its exit code
	kept = s.recordEnd(m, final, usage, kept, states)
	rec := s.record()
	s.c.log.Info("session ended", "session", s.id, "status", rec.Status, "reason", rec.Reason, "snapshot", rec.KeptSnapshotID, "duration", time.Duration(rec.StoppedAt-rec.StartedAt)*time.Millisecond)
	s.over()
	s.c.afterEnd(kept, states)
	switch {
	case ask == nil:
	case kept != nil:
		ask.answer(kept.Snapshot, nil)
	default:
		ask.answer(store.Snapshot{}, api.Errorf(api.CodeConflict, "session %s has ended and no snapshot was taken: %s", s.id, rec.Reason))
	}
}

// diskLost notes why the disk of a session was not kept.
func (s *session) diskLost(m node.Machine, err error) api.SessionStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	reason := "its disk could not be kept: " + err.Error()
	select {
	case <-m.Done():
		if why := m.Err(); why != nil && !isStopped(why) {
			reason = reasonOf(why, s.rec.VCPUs*api.MemoryPerVCPU) + "; its disk could not be kept"
		}
	default:
	}
	s.rec.Status, s.rec.Reason, s.rec.DiskLost, s.rec.KeptSnapshotID = api.StatusFailed, reason, true, ""
	return api.StatusFailed
}

func (s *session) endMachine(m node.Machine, final api.SessionStatus) api.SessionStatus {
	ctx, cancel := context.WithTimeout(context.Background(), node.StopTimeout+stopGrace)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		s.c.log.Error("end machine", "session", s.id, "err", err)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rec.Reason = "its machine could not be ended cleanly: " + err.Error()
		return api.StatusFailed
	}
	return final
}

// endCommands kills what runs and lets its last output arrive, which would go
// with the machine. A guest that does not cooperate costs commandGrace.
func (s *session) endCommands(m node.Machine) {
	ctx, cancel := context.WithTimeout(s.ctx, commandGrace)
	defer cancel()
	s.mu.Lock()
	running := slices.Collect(maps.Values(s.commands))
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, cmd := range running {
		wg.Go(func() {
			m.Signal(ctx, cmd.id, sigKill, true) //nolint:errcheck // the machine's end is next
			select {
			case <-cmd.done:
			case <-ctx.Done():
			case <-m.Done():
			}
		})
	}
	wg.Wait()
}

// measure reads the usage of a machine that is about to end, or has.
func (s *session) measure(m node.Machine) store.Usage {
	ctx, cancel := context.WithTimeout(s.ctx, usageTimeout)
	defer cancel()
	u, err := m.Usage(ctx)
	if err != nil {
		s.c.log.Warn("measure machine at its end", "session", s.id, "err", err)
	}
	return store.Usage{CPUMs: u.CPU.Milliseconds()} // keepNetwork adds the rest
}
