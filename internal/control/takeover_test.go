package control

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/guest/wire"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// deadServer leaves what a server leaves that was killed while a session ran
// in status, with a command that has said "begun " and waits.
func deadServer(t *testing.T, dir string, status api.SessionStatus) store.Session {
	t.Helper()
	st, err := store.Open(t.Context(), filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := st.EnsureProject(ctx, "p", 1); err != nil {
		t.Fatal(err)
	}
	started := newClock().Now().Add(-time.Minute).UnixMilli()
	image := testImage.Reference + "@" + testImage.Digest
	sb := store.Sandbox{ID: "sbx_1", Project: "p", Name: "box", Status: status, CurrentSessionID: "se_1",
		Ports:       []store.Port{{Port: 80, Subdomain: "sub"}},
		SandboxSpec: store.SandboxSpec{Persistent: true, Image: image, VCPUs: 2, Env: map[string]string{"FROM": "create"}}}
	se := store.Session{ID: "se_1", Project: "p", SandboxID: sb.ID, SandboxName: "box", Status: status,
		SessionData: store.SessionData{StartedAt: started, Timeout: 120_000, Image: image, VCPUs: 2, Machine: []byte(`"theirs"`)}}
	if err := st.CreateSandbox(ctx, sb, se, nil); err != nil {
		t.Fatal(err)
	}
	cmd := store.Command{ID: "cmd_1", SessionID: se.ID, StartedAt: started,
		CommandData: store.CommandData{Name: "sleep", Args: []string{"begun "}, Timeout: 90_000}}
	if err := st.CreateCommand(ctx, cmd, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "sessions", se.ID), 0o700); err != nil {
		t.Fatal(err)
	}
	half := record(wire.RecordStdout, "begun ")[:wire.RecordHeaderSize+3]
	if err := os.WriteFile(filepath.Join(dir, "sessions", se.ID, cmd.ID+".log"), half, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return se
}

// adopted makes a rig whose node has the dead server's machine, as the guest
// left it.
func adopted(t *testing.T, dir string) *rig {
	t.Helper()
	r := rigAt(t, dir, api.DefaultLimits())
	r.node.onAdopt = func(m *fakeMachine, state string) error {
		if state != `"theirs"` || m.spec.VCPUs != 2 || m.spec.Image.Digest != testImage.Digest {
			t.Errorf("state %s, spec %+v", state, m.spec)
		}
		return m.StartCommand(context.Background(), guest.Command{ID: "cmd_1", Argv: []string{"sleep", "begun "}, Dir: "/"})
	}
	if err := r.c.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.node.swept != 1 {
		t.Errorf("swept %d times", r.node.swept)
	}
	return r
}

// TestTakeOver: a session goes on with its command, whose output is there
// once, and with its routes, its environment and what is left of its times.
func TestTakeOver(t *testing.T) {
	dir := t.TempDir()
	se := deadServer(t, dir, api.StatusRunning)
	r := adopted(t, dir)
	got, err := r.GetSandbox(t.Context(), "box", false)
	if err != nil || got.Session.Status != api.StatusRunning || got.Session.ID != se.ID {
		t.Fatalf("%+v, %v", got, err)
	}
	if route, err := r.c.Route(t.Context(), "SUB"); err != nil || route.State != RouteRunning || route.Port != 80 {
		t.Errorf("route %+v, %v", route, err)
	}
	if out, _, _ := r.output(t, r.run(t, se.ID, "env")); !strings.Contains(out, "FROM=create") {
		t.Errorf("environment %q", out)
	}
	r.clock.advance(29 * time.Second)
	if cmd, err := r.GetCommand(t.Context(), se.ID, "cmd_1"); err != nil || cmd.ExitCode != nil {
		t.Errorf("before its time-out: %+v, %v", cmd, err)
	}
	r.clock.advance(2 * time.Second)
	out, errs, code := r.output(t, &api.Command{ID: "cmd_1", SessionID: se.ID})
	if out != "begun " || errs != "" || code != 128+sigKill {
		t.Errorf("%q, %q, %d", out, errs, code)
	}
	r.clock.advance(30 * time.Second)
	awaitStatus(t, r, se.ID, api.StatusStopped)
	if rec, err := r.c.store.Session(t.Context(), "p", se.ID); err != nil || rec.Machine != nil || rec.KeptSnapshotID == "" {
		t.Errorf("at its end: %+v, %v", rec, err)
	}
}

// TestTakeOverStopping: a stop that a dead server had begun is brought to its
// end, and the disk is kept.
func TestTakeOverStopping(t *testing.T) {
	dir := t.TempDir()
	se := deadServer(t, dir, api.StatusStopping)
	r := adopted(t, dir)
	awaitStatus(t, r, se.ID, api.StatusStopped)
	if rec, err := r.c.store.Session(t.Context(), "p", se.ID); err != nil || rec.KeptSnapshotID == "" {
		t.Errorf("%+v, %v", rec, err)
	}
	if _, _, code := r.output(t, &api.Command{ID: "cmd_1", SessionID: se.ID}); code != 128+sigKill {
		t.Errorf("code %d", code)
	}
}

// TestTakeOverSnapshotting: one whose snapshot nobody will be told of goes on.
func TestTakeOverSnapshotting(t *testing.T) {
	dir := t.TempDir()
	se := deadServer(t, dir, api.StatusSnapshotting)
	r := adopted(t, dir)
	if got, err := r.GetSandbox(t.Context(), "box", true); err != nil || got.Session.Status != api.StatusRunning || got.Session.ID != se.ID {
		t.Fatalf("%+v, %v", got, err)
	}
}

// TestTakeOverFails: what cannot be taken over ends as aborted, and says why.
func TestTakeOverFails(t *testing.T) {
	dir := t.TempDir()
	se := deadServer(t, dir, api.StatusRunning)
	r := rigAt(t, dir, api.DefaultLimits())
	r.node.onAdopt = func(*fakeMachine, string) error { return errors.New("no agent answers") }
	if err := r.c.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	rec, err := r.c.store.Session(t.Context(), "p", se.ID)
	if err != nil || rec.Status != api.StatusAborted || rec.Machine != nil || !strings.Contains(rec.Reason, "no agent answers") {
		t.Errorf("%+v, %v", rec, err)
	}
	if out, errs, code := r.output(t, &api.Command{ID: "cmd_1", SessionID: se.ID}); out != "beg" || code != 137 || !strings.Contains(errs, "server died") {
		t.Errorf("%q, %q, %d", out, errs, code)
	}
}

// awaitStatus waits for the end of a session.
func awaitStatus(t *testing.T, r *rig, id string, want api.SessionStatus) {
	t.Helper()
	if s := r.c.liveSession("p", id); s != nil {
		<-s.done
	}
	rec, err := r.c.store.Session(t.Context(), "p", id)
	if err != nil || rec.Status != want {
		t.Fatalf("session %s: %+v, %v; want it %s", id, rec, err, want)
	}
}
