package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/egress"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/oidc"
	"github.com/glovebox-dev/glovebox/internal/snapshot"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// start gives a pending session a machine, fetches source (where not nil)
// into it, and has it running when it returns. On error nothing of it is
// left but the record, whose status is failed, and s is over.
func (s *session) start(ctx context.Context, policy egress.Policy, source *api.Source, ports []store.Port) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.giveUp = cancel
	rec := s.rec
	if s.ending { // before it began
		cancel()
	}
	s.mu.Unlock()

	m, err := s.c.node.Start(ctx, s.machineSpec(rec, policy))
	if err != nil {
		return s.failStart(ctx, s.startError(err))
	}
	if source != nil {
		err = s.fetch(ctx, m, source)
	}
	if err == nil {
		err = s.run(ctx, m, ports)
	}
	if err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), node.StopTimeout)
		defer cancel()
		if stopErr := m.Stop(stop); stopErr != nil {
			s.c.log.Error("end machine of a session that did not start", "session", s.id, "err", stopErr)
		}
		return s.failStart(ctx, err)
	}
	s.runStartCommand(ctx)
	return nil
}

// machineSpec is the machine of a session with this record.
func (s *session) machineSpec(rec store.Session, policy egress.Policy) node.Spec {
	return node.Spec{
		ID: s.id, Image: s.image, Layers: s.layers, Drives: s.nodeDrives(), VCPUs: rec.VCPUs, MemoryBytes: int64(rec.VCPUs) * api.MemoryPerVCPU << 20,
		DiskBytes: s.c.cfg.Limits.DiskBytes, Policy: policy, Identity: identity(rec),
	}
}

// identity is whom a session's forwarded requests tell of.
func identity(rec store.Session) oidc.Identity {
	return oidc.Identity{Project: rec.Project, SandboxID: rec.SandboxID, SandboxName: rec.SandboxName, SessionID: rec.ID}
}

// startError turns an error of the node into what a client sees. A layer that
// is gone from the server's disk is a conflict: it is of no use to repeat the
// call, and the sandbox is not to be made anew.
func (s *session) startError(err error) error {
	if errors.Is(err, snapshot.ErrNotFound) {
		what := "a drive"
		if id := s.record().SourceSnapshotID; id != "" {
			what = "snapshot " + id
			if len(s.drives) > 0 {
				what += " or a drive"
			}
		}
		return api.Errorf(api.CodeConflict, "sandbox %q cannot start: part of %s is missing on the server's disk (%v); bring the file back, or start from another snapshot. Nothing else was changed", s.record().SandboxName, what, err)
	}
	if errors.Is(err, node.ErrCapacity) {
		return &api.Error{Code: api.CodeRateLimited, RetryAfter: 5 * time.Second,
			Message: fmt.Sprintf("this server has no room for another sandbox now (%v); stop one, or try again later", err)}
	}
	return internal("start session "+s.id, err)
}

// run makes the session running with machine m.
func (s *session) run(ctx context.Context, m node.Machine, ports []store.Port) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return errGivenUp
	}
	now := s.c.clock.Now()
	s.rec.Status, s.rec.StartedAt = api.StatusRunning, now.UnixMilli()
	s.rec.Machine, s.rec.Layers, s.rec.Drives = m.State(), recorded(s.layers), s.recordedDrives()
	if err := s.save(ctx); err != nil {
		return internal("record session "+s.id, err)
	}
	s.runsOn(m, now, ports)
	s.c.log.Info("session runs", "session", s.id, "sandbox", s.rec.SandboxName, "project", s.project)
	return nil
}

// runsOn makes a session that was started at a time use its machine. Held: mu.
func (s *session) runsOn(m node.Machine, started time.Time, ports []store.Port) {
	s.machine = m
	s.setDeadline(started.Add(api.Milliseconds(s.rec.Timeout)))
	s.c.setRoutes(s, ports)
	close(s.started)
	s.c.wg.Go(func() {
		<-m.Done()
		s.lost(m.Err())
	})
}

// errGivenUp: the session was stopped or its sandbox deleted while it started.
var errGivenUp = api.Errorf(api.CodeSandboxStopped, "the sandbox was stopped while it started")

// failStart ends a session that did not start, and returns what to tell.
func (s *session) failStart(ctx context.Context, err error) error {
	s.mu.Lock()
	if s.ending && errors.Is(err, context.Canceled) {
		err = errGivenUp
	}
	s.ending, s.startErr = true, err
	s.rec.Status, s.rec.StoppedAt, s.rec.Reason = api.StatusFailed, s.c.now(), err.Error()
	s.rec.Usage = &store.Usage{}
	if e := s.save(ctx); e != nil {
		s.c.log.Error("record session", "session", s.id, "err", e)
	}
	s.mu.Unlock()
	if s.undo != nil {
		s.undo()
	}
	s.over()
	close(s.started)
	return err
}

// over is the last step of every session.
func (s *session) over() {
	s.cancel()
	s.c.forget(s)
	close(s.done)
}
