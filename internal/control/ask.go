package control

import (
	"context"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// snapshotAsk is a call that asks for a snapshot, which ends the session.
type snapshotAsk struct {
	expiration *int64 // milliseconds; nil: the sandbox's default
	key        *store.Key

	done     chan struct{} // closed when what follows is set, and the session is over or goes on
	snapshot store.Snapshot
	err      error
}

// CreateSnapshot ends a running session and keeps its disk. Where that cannot
// be kept the session goes on, and nothing has changed but that its commands
// were ended; where the machine is lost as well, the error is a conflict,
// which clients do not repeat: a second call would keep an older disk.
func (p *Project) CreateSnapshot(ctx context.Context, sessionID string, req api.CreateSnapshotRequest, idempotencyKey string) (*api.CreateSnapshotResponse, error) {
	if err := api.ValidateSnapshotExpiration("expiration", req.Expiration); err != nil {
		return nil, err
	}
	find := func(id string) (*api.CreateSnapshotResponse, error) {
		sn, err := p.snapshot(ctx, id)
		if err != nil {
			return nil, err
		}
		return p.answerSnapshot(ctx, sn, sessionID)
	}
	return once(ctx, p, "snapshot "+sessionID, idempotencyKey, req, find, func(key *store.Key) (*api.CreateSnapshotResponse, error) {
		s, err := p.running(ctx, sessionID)
		if err != nil {
			return nil, err
		}
		ask := &snapshotAsk{expiration: optional(req.Expiration), key: key, done: make(chan struct{})}
		if err := s.beginSnapshot(ask); err != nil {
			return nil, err
		}
		select {
		case <-ask.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if ask.err != nil {
			return nil, ask.err
		}
		return p.answerSnapshot(ctx, ask.snapshot, sessionID)
	})
}

func (p *Project) answerSnapshot(ctx context.Context, sn store.Snapshot, sessionID string) (*api.CreateSnapshotResponse, error) {
	_, rec, err := p.find(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	return &api.CreateSnapshotResponse{Snapshot: p.c.snapshotView(sn), Session: sessionView(rec)}, nil
}

// beginSnapshot takes a running session to snapshotting.
func (s *session) beginSnapshot(ask *snapshotAsk) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableNow(); err != nil {
		return err
	}
	s.ending, s.ask = true, ask
	now := s.c.now()
	s.rec.Status, s.rec.RequestedStopAt, s.rec.SnapshottedAt = api.StatusSnapshotting, now, now
	s.timer.Stop()
	if err := s.save(s.ctx); err != nil {
		s.c.log.Error("record session", "session", s.id, "err", err)
	}
	m := s.machine
	s.c.wg.Go(func() { s.finish(m, api.StatusStopped, ask) })
	return nil
}

// answer tells the caller how the snapshot went.
func (a *snapshotAsk) answer(sn store.Snapshot, err error) {
	if a != nil {
		a.snapshot, a.err = sn, err
		close(a.done)
	}
}

// goOn takes a session back to running whose snapshot could not be taken: its
// machine is all that has its disk. A stop that came meanwhile begins now. It
// returns false where the machine is lost.
func (s *session) goOn(m node.Machine) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-m.Done():
		return false
	default:
	}
	s.ending, s.ask = false, nil
	s.rec.Status, s.rec.RequestedStopAt, s.rec.SnapshottedAt = api.StatusRunning, 0, 0
	if s.stopNext != nil {
		s.timer.Stop()
		s.beginStop(api.StatusStopped, *s.stopNext)
		return true
	}
	if err := s.save(s.ctx); err != nil {
		s.c.log.Error("record session", "session", s.id, "err", err)
	}
	s.setDeadline(s.deadline)
	return true
}
