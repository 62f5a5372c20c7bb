package control

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// brokenStore cannot record the next ends of sessions.
type brokenStore struct {
	store.Store
	ends atomic.Int32
}

func (s *brokenStore) EndSession(ctx context.Context, se store.Session, kept *store.Kept, states ...store.DriveState) error {
	if kept != nil && s.ends.Add(-1) >= 0 {
		return errors.New("disk full")
	}
	return s.Store.EndSession(ctx, se, kept, states...)
}

// The record of a kept disk is tried again; where it stays impossible nobody
// is told that there is a snapshot.
func TestEndThatCannotBeRecorded(t *testing.T) {
	r := newRig(t)
	broken := &brokenStore{Store: r.c.store}
	r.c.store = broken
	for _, c := range []struct {
		fails  int32
		status api.SessionStatus
		want   string
	}{{recordTries - 1, api.StatusStopped, "2"}, {recordTries, api.StatusFailed, "1"}} {
		name := string(c.status)
		id := r.create(t, api.CreateSandboxRequest{Name: name, SnapshotExpiration: api.IntOf(0)}).Session.ID
		r.write(t, id, "x", "1")
		r.stop(t, id)
		id = r.resume(t, name).Session.ID
		r.write(t, id, "x", "2")
		broken.ends.Store(c.fails)
		stopped := make(chan *api.StopSessionResponse)
		go func() { stopped <- r.stop(t, id) }()
		for try := range min(c.fails, recordTries-1) {
			for broken.ends.Load() >= c.fails-try { // so that no other timer runs
				time.Sleep(time.Millisecond)
			}
			r.clock.blockUntil(1)
			r.clock.advance(recordPause)
		}
		if out := <-stopped; out.Session.Status != c.status || (out.Snapshot != nil) != (c.status == api.StatusStopped) {
			t.Errorf("%d failures: %+v", c.fails, out)
		}
		id = r.resume(t, name).Session.ID
		if text := r.read(t, id, "x"); text != c.want {
			t.Errorf("%d failures: %q, want %q", c.fails, text, c.want)
		}
		r.stop(t, id) // and its timer
	}
}

// Who waits for a session whose snapshot fails gets that session.
func TestWaitersOfASnapshotThatFails(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	saving, delay := make(chan struct{}), make(chan struct{})
	m := r.node.last()
	m.onSave = func() error {
		close(saving)
		<-delay
		m.onSave = nil
		return errors.New("disk full")
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := r.CreateSnapshot(t.Context(), id, api.CreateSnapshotRequest{}, ""); err == nil {
			t.Error("taken")
		}
	})
	<-saving
	wg.Go(func() {
		if got := r.resume(t, "a"); got.Session.ID != id || got.Resumed {
			t.Errorf("%+v", got)
		}
	})
	wg.Go(func() {
		if _, err := r.ForkSandbox(t.Context(), "a", api.ForkSandboxRequest{}, ""); err != nil {
			t.Error(err)
		}
	})
	close(delay)
	wg.Wait()
}
