package control

import (
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// settle waits until nobody else starts a session of a sandbox, rolls it back
// or deletes it, and keeps others from it until free is called.
func (c *Control) settle(ctx context.Context, sb store.Sandbox) (free func(), err error) {
	return c.enter(ctx, inflightKey{sb.Project, "sandbox", sb.ID})
}

// GetSandbox tells of a sandbox and its current session. With resume it
// answers only when a session runs: it waits for one that starts or stops,
// and starts one where there is none. Of several such calls at once one starts
// it, and that one's answer says resumed.
func (p *Project) GetSandbox(ctx context.Context, name string, resume bool) (*api.SandboxAndSession, error) {
	for {
		sb, err := p.sandbox(ctx, name)
		if err != nil {
			return nil, err
		}
		if !resume {
			return p.answer(ctx, sb)
		}
		s, mine := p.c.sessionOf(sb.ID), false
		if s == nil {
			if s, mine, err = p.resume(ctx, sb); err != nil {
				return nil, err
			}
		}
		again, err := s.ready(ctx)
		if err != nil {
			return nil, err
		}
		if again {
			continue
		}
		if sb, err = p.sandbox(ctx, name); err != nil {
			return nil, err
		}
		out, err := p.answer(ctx, sb)
		if err == nil {
			out.Resumed = mine
		}
		return out, err
	}
}

// ready waits until the session can be used or, then again is true, is over.
// One whose snapshot fails can be used again.
func (s *session) ready(ctx context.Context) (again bool, err error) {
	select {
	case <-s.started:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	for {
		s.mu.Lock()
		usable, ask := s.usableNow() == nil, s.ask
		s.mu.Unlock()
		if usable {
			return false, nil
		}
		var asked chan struct{}
		if ask != nil {
			asked = ask.done
		}
		select {
		case <-s.done:
			s.mu.Lock()
			defer s.mu.Unlock()
			return true, s.startErr
		case <-asked:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// resume starts a session of a sandbox that has none, and returns before it
// runs; it goes on if ctx ends. Where another call was faster it returns that
// one's session, and mine is false.
func (p *Project) resume(ctx context.Context, sb store.Sandbox) (s *session, mine bool, err error) {
	c := p.c
	free, err := c.settle(ctx, sb)
	if err != nil {
		return nil, false, err
	}
	defer free()
	if s := c.sessionOf(sb.ID); s != nil {
		return s, false, nil
	}
	if sb, err = p.sandbox(ctx, sb.Name); err != nil {
		return nil, false, err
	}
	_, last, err := p.find(ctx, sb.CurrentSessionID)
	if err != nil {
		return nil, false, err
	}
	from, err := p.resumeFrom(ctx, sb, last)
	if err != nil {
		return nil, false, err
	}
	policy, err := parsePolicy(sb.NetworkPolicy)
	if err != nil {
		return nil, false, internal("read the stored policy of sandbox "+sb.ID, err)
	}
	rec := newRecord(sb, c.now())
	rec.Notice = noticeOf(sb, last)
	s = c.newSession(rec, from.image, sb.SandboxSpec)
	if err := p.registerFrom(ctx, s, from, sb.Mounts); err != nil {
		if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.CodeNotFound {
			// The sandbox is there: nobody is to make it anew.
			err = api.Errorf(api.CodeConflict, "sandbox %q cannot start: %s; update its mounts, or create the drive", sb.Name, e.Message)
		}
		return nil, false, err
	}
	if err := c.store.AddSession(context.WithoutCancel(ctx), s.record()); err != nil {
		s.abandon()
		return nil, false, p.startsFrom(err, "sandbox", sb.Name, sb.CurrentSnapshotID)
	}
	s.undo = func() {
		if err := c.store.RemoveSession(context.Background(), s.id); err != nil && !errors.Is(err, store.ErrNotFound) {
			c.log.Error("remove session that did not start", "session", s.id, "err", err)
		}
	}
	background := context.WithoutCancel(ctx)
	c.wg.Go(func() {
		if err := s.start(background, policy, nil, sb.Ports); err != nil {
			c.log.Warn("resume sandbox", "sandbox", sb.Name, "project", sb.Project, "err", err)
		}
	})
	return s, true, nil
}

// origin is what a session starts from.
type origin struct {
	snapshot string // "" for the image alone
	image    image.Image
	pinned   string // "reference@sha256:…" of the image
}

// resumeFrom finds what the next session of a sandbox starts from, whose last
// one was last.
func (p *Project) resumeFrom(ctx context.Context, sb store.Sandbox, last store.Session) (origin, error) {
	switch {
	case !sb.Persistent:
		return origin{}, api.Errorf(api.CodeSandboxStopped, "sandbox %q has stopped%s and is not persistent, so it cannot be resumed; create a new one", sb.Name, because(last))
	case sb.CurrentSnapshotID != "":
		return p.origin(ctx, sb.CurrentSnapshotID)
	case last.DiskLost:
		// An empty disk in place of the one that was lost would be worse
		// than none.
		return origin{}, api.Errorf(api.CodeSnapshotNotFound, "sandbox %q has no disk to resume from%s; delete it and create a new one", sb.Name, because(last))
	}
	return p.imageOrigin(ctx, sb.Image)
}

func because(last store.Session) string {
	if last.Reason == "" {
		return ""
	}
	return " (" + last.Reason + ")"
}

// noticeOf says what the disk of the next session lacks.
func noticeOf(sb store.Sandbox, last store.Session) string {
	switch {
	case last.Status == api.StatusStopped:
		return ""
	case sb.CurrentSnapshotID == "":
		return "it starts from the image: the session before it ended before its disk was kept" + because(last)
	}
	return "it starts from the last snapshot: what the session before it wrote was not kept" + because(last)
}
