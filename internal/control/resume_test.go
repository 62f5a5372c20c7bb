package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/snapshot"
)

// write and read are files of a running session.
func (r *rig) write(t *testing.T, id, name, text string) {
	t.Helper()
	if err := r.WriteFiles(t.Context(), id, "/vercel/sandbox", bytes.NewReader(gz(t, makeTar(t, name, text)))); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) read(t *testing.T, id, name string) string {
	t.Helper()
	f, _, err := r.ReadFile(t.Context(), id, name, "")
	if e, ok := errors.AsType[*api.Error](err); ok && e.Missing {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b strings.Builder
	buf := make([]byte, 64)
	for {
		n, err := f.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return b.String()
		}
	}
}

func (r *rig) stop(t *testing.T, id string) *api.StopSessionResponse {
	t.Helper()
	out, err := r.StopSession(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (r *rig) resume(t *testing.T, name string) *api.SandboxAndSession {
	t.Helper()
	out, err := r.GetSandbox(t.Context(), name, true)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestResumeKeepsEverything(t *testing.T) {
	r := newRig(t)
	deny := &api.NetworkPolicy{Mode: api.PolicyDenyAll}
	first := r.create(t, api.CreateSandboxRequest{Name: "a", Ports: []api.Int{api.IntOf(3000)}, Env: map[string]string{"K": "v"},
		NetworkPolicy: deny, Timeout: api.IntOf(60_000), Tags: map[string]string{"t": "1"}})
	id := first.Session.ID
	for cycle := range 10 {
		r.write(t, id, "log.txt", fmt.Sprint("cycle ", cycle))
		stopped := r.stop(t, id)
		if stopped.Snapshot == nil || stopped.Sandbox.CurrentSnapshotID != stopped.Snapshot.ID || stopped.Session.Status != api.StatusStopped ||
			stopped.Snapshot.SourceSessionID != id || stopped.Snapshot.CreationMethod != "automatic" {
			t.Fatalf("stopped: %+v", stopped)
		}
		if again := r.stop(t, id); again.Snapshot == nil || again.Snapshot.ID != stopped.Snapshot.ID {
			t.Errorf("second stop: %+v", again)
		}
		got := r.resume(t, "a")
		if !got.Resumed || got.Session.ID == id || got.Session.SourceSnapshotID != stopped.Snapshot.ID || got.Session.Notice != "" {
			t.Fatalf("resumed: %+v", got)
		}
		if got.Session.Timeout != 60_000 || got.Session.NetworkPolicy.Mode != api.PolicyDenyAll || got.Routes[0] != first.Routes[0] || got.Sandbox.ExpiresAt == 0 {
			t.Errorf("settings: %+v", got)
		}
		id = got.Session.ID
		if text := r.read(t, id, "log.txt"); text != fmt.Sprint("cycle ", cycle) {
			t.Fatalf("cycle %d: %q", cycle, text)
		}
		if out, _, _ := r.output(t, r.run(t, id, "env")); !strings.Contains(out, "K=v\n") {
			t.Errorf("env %q", out)
		}
		if again := r.resume(t, "a"); again.Resumed || again.Session.ID != id {
			t.Errorf("resume of a running one: %+v", again)
		}
	}
	if n := len(r.node.last().spec.Layers); n > maxChain+1 {
		t.Errorf("%d layers", n)
	}
}

// Of many resumes at once, also during the stop, one starts a session.
func TestConcurrentResumes(t *testing.T) {
	r := newRig(t)
	stopping, delay := make(chan struct{}), make(chan struct{})
	r.node.onStart = func(_ context.Context, m *fakeMachine) error {
		m.onSave = func() error { close(stopping); <-delay; return nil }
		return nil
	}
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	r.write(t, id, "x", "kept")
	r.node.onStart = nil
	var wg sync.WaitGroup
	wg.Go(func() { r.stop(t, id) })
	<-stopping
	for name, use := range r.uses(id) {
		t.Run("stopping "+name, func(t *testing.T) { wantCode(t, use(), api.CodeSandboxStopping) })
	}
	results := make(chan *api.SandboxAndSession, 20)
	for range cap(results) {
		wg.Go(func() { results <- r.resume(t, "a") })
	}
	close(delay)
	wg.Wait()
	close(results)
	sessions, resumed := map[string]bool{}, 0
	for got := range results {
		sessions[got.Session.ID] = true
		if got.Resumed {
			resumed++
		}
		if text := r.read(t, got.Session.ID, "x"); text != "kept" {
			t.Errorf("%q", text)
		}
	}
	if len(sessions) != 1 || resumed != 1 || r.node.running() != 1 {
		t.Errorf("%d sessions, %d resumed, %d machines", len(sessions), resumed, r.node.running())
	}
}

func TestTimeoutAndShutdownKeepTheDisk(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{Name: "a", Timeout: api.IntOf(10_000)}).Session.ID
	r.write(t, id, "x", "1")
	done := r.doneOf(id)
	r.clock.advance(10 * time.Second)
	<-done
	id = r.resume(t, "a").Session.ID
	if text := r.read(t, id, "x"); text != "1" {
		t.Fatalf("%q", text)
	}
	r.write(t, id, "x", "2")
	if err := r.c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := rigAt(t, r.dir, api.DefaultLimits())
	again.node.disks.layers = r.node.disks.layers // as if on disk
	if err := again.c.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := again.resume(t, "a")
	if text := again.read(t, got.Session.ID, "x"); text != "2" || !got.Resumed {
		t.Errorf("%q, %+v", text, got)
	}
}

// A disk that cannot be kept is told of, and the one before it stays.
func TestSaveFails(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	r.write(t, id, "x", "1")
	first := r.stop(t, id).Snapshot
	id = r.resume(t, "a").Session.ID
	r.write(t, id, "x", "2")
	r.node.last().onSave = func() error { return errors.New("no space left on device") }
	stopped := r.stop(t, id)
	if stopped.Session.Status != api.StatusFailed || !strings.Contains(stopped.Session.Reason, "no space left") || stopped.Snapshot != nil ||
		stopped.Sandbox.CurrentSnapshotID != first.ID || r.node.running() != 0 {
		t.Fatalf("%+v", stopped)
	}
	got := r.resume(t, "a")
	if text := r.read(t, got.Session.ID, "x"); text != "1" || !strings.Contains(got.Session.Notice, "no space left") {
		t.Errorf("%q, %+v", text, got.Session)
	}

	id = r.create(t, api.CreateSandboxRequest{Name: "b"}).Session.ID
	r.node.last().onSave = func() error { return errors.New("no space left on device") }
	r.stop(t, id)
	_, err := r.GetSandbox(t.Context(), "b", true)
	wantCode(t, err, api.CodeSnapshotNotFound, "no space left", "delete it")
}

func TestDeathKeepsTheLastSnapshot(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	r.write(t, id, "x", "1")
	snapshot := r.stop(t, id).Snapshot
	id = r.resume(t, "a").Session.ID
	r.write(t, id, "x", "2")
	done := r.doneOf(id)
	r.node.last().die(driver.ErrKernel)
	<-done
	if got, err := r.GetSandbox(t.Context(), "a", false); err != nil || got.Sandbox.Status != api.StatusFailed || got.Sandbox.CurrentSnapshotID != snapshot.ID {
		t.Fatalf("%+v, %v", got, err)
	}
	got := r.resume(t, "a")
	if text := r.read(t, got.Session.ID, "x"); text != "1" || !got.Resumed || got.Session.Notice == "" {
		t.Errorf("%q, %+v", text, got.Session)
	}
}

// What cannot start now leaves the sandbox as it was.
func TestResumeFails(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	r.write(t, id, "x", "1")
	r.stop(t, id)
	before, err := r.GetSandbox(t.Context(), "a", false)
	if err != nil {
		t.Fatal(err)
	}
	r.node.onStart = func(context.Context, *fakeMachine) error { return node.ErrCapacity }
	_, err = r.GetSandbox(t.Context(), "a", true)
	wantCode(t, err, api.CodeRateLimited)
	after, err := r.GetSandbox(t.Context(), "a", false)
	if err != nil {
		t.Fatal(err)
	}
	after.Sandbox.StatusUpdatedAt = before.Sandbox.StatusUpdatedAt
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("a failed resume left its mark (-before +after):\n%s", d)
	}
	// A layer that is gone from the disk is told with its snapshot, and all
	// else stays as it is.
	r.node.onStart = func(context.Context, *fakeMachine) error {
		return fmt.Errorf("layer sha256:1: %w", snapshot.ErrNotFound)
	}
	_, err = r.GetSandbox(t.Context(), "a", true)
	wantCode(t, err, api.CodeConflict, before.Sandbox.CurrentSnapshotID, "sha256:1", "missing")
	if after, err := r.GetSandbox(t.Context(), "a", false); err != nil || after.Sandbox.CurrentSnapshotID != before.Sandbox.CurrentSnapshotID {
		t.Errorf("%+v, %v", after, err)
	}
	r.node.onStart = nil
	got := r.resume(t, "a")
	if text := r.read(t, got.Session.ID, "x"); text != "1" {
		t.Errorf("%q", text)
	}
}

// A resume goes on when its caller goes away.
func TestResumeOutlivesItsCaller(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	r.stop(t, id)
	starting, delay := make(chan struct{}), make(chan struct{})
	r.node.onStart = func(context.Context, *fakeMachine) error { close(starting); <-delay; return nil }
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { _, err := r.GetSandbox(ctx, "a", true); left <- err }()
	<-starting
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.node.onStart = nil
	close(delay)
	if got := r.resume(t, "a"); got.Resumed || got.Session.ID == id {
		t.Errorf("%+v", got)
	}
}

func TestNothingWritten(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	first := r.stop(t, id)
	if first.Snapshot == nil || first.Sandbox.CurrentSnapshotID == "" {
		t.Fatalf("%+v", first)
	}
	second := r.stop(t, r.resume(t, "a").Session.ID)
	if second.Snapshot == nil || second.Snapshot.ID != first.Snapshot.ID {
		t.Errorf("%+v", second)
	}
	// A snapshot that was deleted while nothing was written is no loss.
	id = r.resume(t, "a").Session.ID
	if _, err := r.DeleteSnapshot(t.Context(), first.Snapshot.ID); err != nil {
		t.Fatal(err)
	}
	if third := r.stop(t, id); third.Snapshot == nil || third.Snapshot.ID == first.Snapshot.ID {
		t.Errorf("%+v", third)
	}
	r.resume(t, "a")
}

// Deleting and resuming at the same time: there is a sandbox or not, and never
// a session without one.
func TestDeleteBesideResume(t *testing.T) {
	r := newRig(t)
	for range 20 {
		id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
		r.stop(t, id)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := r.GetSandbox(t.Context(), "a", true); err != nil {
				if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeNotFound && e.Code != api.CodeSandboxStopped {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			if _, err := r.DeleteSandbox(t.Context(), "a", true); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if n := r.node.running(); n != 0 {
			t.Fatalf("%d machines", n)
		}
	}
}

func TestNotPersistent(t *testing.T) {
	r := newRig(t)
	no, yes := false, true
	id := r.create(t, api.CreateSandboxRequest{Name: "a", Persistent: &no}).Session.ID
	r.write(t, id, "x", "1")
	if out := r.stop(t, id); out.Snapshot != nil || out.Sandbox.CurrentSnapshotID != "" {
		t.Errorf("%+v", out)
	}
	_, err := r.GetSandbox(t.Context(), "a", true)
	wantCode(t, err, api.CodeSandboxStopped, "not persistent")
	id = r.create(t, api.CreateSandboxRequest{Name: "b", Persistent: &no}).Session.ID
	if _, err := r.UpdateSandbox(t.Context(), "b", api.UpdateSandboxRequest{Persistent: &yes}); err != nil {
		t.Fatal(err)
	}
	r.write(t, id, "x", "1")
	r.stop(t, id)
	if text := r.read(t, r.resume(t, "b").Session.ID, "x"); text != "1" {
		t.Errorf("%q", text)
	}
}
