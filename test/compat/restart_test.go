//go:build linux && !race

package compat

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/test/testserver"
)

// TestStateOutlivesTheServer: what a server kept is there for the next one,
// whether it ended in good order, or died with all that ran.
func TestStateOutlivesTheServer(t *testing.T) {
	server := testserver.Start(t)
	get := func(b *testserver.Sandbox, resume bool) (out api.SandboxAndSession) {
		t.Helper()
		server.Call(t, http.MethodGet, fmt.Sprintf("/v2/sandboxes/%s?resume=%v", b.Name, resume), nil, &out)
		b.Session = out.Session.ID
		return out
	}
	sh := func(b *testserver.Sandbox, script, want string) {
		t.Helper()
		if got := b.Run(t, nil, "sh", "-c", script); got.Stdout != want || got.ExitCode != 0 {
			t.Errorf("%s: %+v, want %q", script, got, want)
		}
	}
	running := server.Create(t, map[string]any{"persistent": true})
	stopped := server.Create(t, map[string]any{"persistent": true})
	sh(running, "echo 1 >> x", "")
	sh(stopped, "echo 1 >> x", "")
	var kept api.StopSessionResponse
	server.Call(t, http.MethodPost, "/v2/sandboxes/sessions/"+stopped.Session+"/stop", nil, &kept)

	server.Restart(t)
	for _, b := range []*testserver.Sandbox{running, stopped} {
		if got := get(b, false); got.Sandbox.Status != api.StatusStopped || got.Sandbox.CurrentSnapshotID == "" {
			t.Errorf("after SIGTERM: %+v", got.Sandbox)
		}
	}
	if got := get(running, true); !got.Resumed || got.Session.Notice != "" {
		t.Errorf("after SIGTERM: %+v", got.Session)
	}
	sh(running, "cat x; echo 2 >> x", "1\n")

	server.KillAllAndRestart(t)
	if got := get(running, false); got.Sandbox.Status != api.StatusAborted || got.Session.Reason == "" {
		t.Errorf("after SIGKILL: %+v", got)
	}
	if got := get(running, true); !got.Resumed || got.Session.Notice == "" {
		t.Errorf("after SIGKILL: %+v", got.Session)
	}
	sh(running, "cat x", "1\n")
	if got := get(stopped, true); kept.Snapshot == nil || got.Session.SourceSnapshotID != kept.Snapshot.ID {
		t.Errorf("stopped: %+v", got.Session)
	}
	sh(stopped, "cat x", "1\n")
}

// TestDrivesOutliveTheServer: what a drive held last is there for the next
// server, and the drive is free, whether the one before ended in good order or
// died.
func TestDrivesOutliveTheServer(t *testing.T) {
	server := testserver.Start(t)
	server.Call(t, http.MethodPost, "/v2/sandboxes/drives/d", nil, nil)
	mounts := map[string]any{"persistent": false, "mounts": map[string]any{"/data": map[string]any{"drive": "d"}}}
	sh := func(b *testserver.Sandbox, script, want string) {
		t.Helper()
		if got := b.Run(t, nil, "sh", "-c", script); got.Stdout != want || got.ExitCode != 0 {
			t.Errorf("%s: %+v, want %q", script, got, want)
		}
	}
	attached := func() string {
		t.Helper()
		var out api.DriveResponse
		server.Call(t, http.MethodGet, "/v2/sandboxes/drives/d", nil, &out)
		return out.Drive.CurrentSandboxName
	}
	b := server.Create(t, mounts)
	sh(b, "echo 1 >> /data/x", "")
	if got := attached(); got != b.Name {
		t.Errorf("attached to %q", got)
	}
	server.Restart(t)
	if got := attached(); got != "" {
		t.Errorf("after SIGTERM: attached to %q", got)
	}
	b = server.Create(t, mounts)
	sh(b, "cat /data/x; echo 2 >> /data/x", "1\n")
	server.KillAndRestart(t) // the next server takes it over
	if got := attached(); got != b.Name {
		t.Errorf("taken over: attached to %q", got)
	}
	sh(b, "cat /data/x; echo 3 >> /data/x", "1\n2\n")
	server.Call(t, http.MethodPost, "/v2/sandboxes/sessions/"+b.Session+"/stop", nil, nil)
	sh(server.Create(t, mounts), "cat /data/x; echo 4 >> /data/x", "1\n2\n3\n")
	server.KillAllAndRestart(t)
	if got := attached(); got != "" {
		t.Errorf("after SIGKILL: attached to %q", got)
	}
	sh(server.Create(t, mounts), "cat /data/x", "1\n2\n3\n")
}
