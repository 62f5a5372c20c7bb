package control

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/guest/wire"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// A server that was killed leaves rows that say running and logs that end
// anywhere.
func TestRecover(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(t.Context(), filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	add := func(name string, status api.SessionStatus) store.Session {
		sb := store.Sandbox{ID: "sbx_" + name, Project: "p", Name: name, Status: status, CurrentSessionID: "se_" + name}
		se := store.Session{ID: sb.CurrentSessionID, Project: "p", SandboxID: sb.ID, SandboxName: name, Status: status,
			SessionData: store.SessionData{StartedAt: 1_799_999_999_000}}
		if err := st.CreateSandbox(ctx, sb, se, nil); err != nil {
			t.Fatal(err)
		}
		return se
	}
	running := add("running", api.StatusRunning)
	add("stopping", api.StatusStopping)
	add("pending", api.StatusPending)
	add("stopped", api.StatusStopped)
	logs := filepath.Join(dir, "sessions")
	log := func(id string, b []byte) {
		if err := st.CreateCommand(ctx, store.Command{ID: id, SessionID: running.ID, StartedAt: 1}, nil); err != nil {
			t.Fatal(err)
		}
		if b == nil {
			return
		}
		if err := os.MkdirAll(filepath.Join(logs, running.ID), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(logs, running.ID, id+".log"), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := record(wire.RecordStdout, "some output")
	log("cmd_cut", text[:len(text)-4])
	log("cmd_ended", wire.AppendExit(text, 5, 0))
	log("cmd_hole", append(append([]byte{}, text...), make([]byte, 100)...))
	log("cmd_none", nil)
	if err := os.MkdirAll(filepath.Join(logs, "se_orphan"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}

	r := rigAt(t, dir, api.DefaultLimits())
	if err := r.c.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]api.SessionStatus{"running": api.StatusAborted, "stopping": api.StatusAborted, "stopped": api.StatusStopped} {
		got, err := r.GetSandbox(t.Context(), name, false)
		if err != nil || got.Session.Status != want || got.Sandbox.Status != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if want == api.StatusAborted && (got.Session.AbortedAt == 0 || got.Session.Reason == "" || got.Session.ActiveCPUDurationMs == nil) {
			t.Errorf("%+v", got.Session)
		}
	}
	_, err = r.GetSandbox(t.Context(), "pending", false)
	wantCode(t, err, api.CodeNotFound)
	for id, want := range map[string]struct {
		code int
		out  string
		note bool
	}{
		"cmd_cut": {137, "some ou", true}, "cmd_ended": {5, "some output", false},
		"cmd_hole": {137, "some output", true}, "cmd_none": {137, "", true},
	} {
		out, errs, code := r.output(t, &api.Command{ID: id, SessionID: running.ID})
		if out != want.out || code != want.code || strings.Contains(errs, "server died") != want.note {
			t.Errorf("%s: %q, %q, %d", id, out, errs, code)
		}
	}
	if _, err := os.Stat(filepath.Join(logs, "se_orphan")); !os.IsNotExist(err) {
		t.Error("logs of nothing are left")
	}
	if err := r.c.Recover(t.Context()); err != nil {
		t.Error("again:", err)
	}
	r.create(t, api.CreateSandboxRequest{Name: "pending"})
}
