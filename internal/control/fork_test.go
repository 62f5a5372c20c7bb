package control

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/api"
)

func (r *rig) fork(t *testing.T, name string, req api.ForkSandboxRequest) *api.SandboxAndSession {
	t.Helper()
	out, err := r.ForkSandbox(t.Context(), name, req, "")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// source is a sandbox with settings other than the defaults.
func (r *rig) source(t *testing.T) *api.SandboxAndSession {
	t.Helper()
	no := false
	return r.create(t, api.CreateSandboxRequest{
		Name: "a", Runtime: "node24", Ports: []api.Int{api.IntOf(3000), api.IntOf(80)}, Timeout: api.IntOf(70_000),
		Resources: &api.Resources{VCPUs: api.IntOf(4)}, Env: map[string]string{"K": "v"}, Tags: map[string]string{"t": "1"},
		NetworkPolicy: &api.NetworkPolicy{Mode: api.PolicyDenyAll}, SnapshotExpiration: api.IntOf(5000), Region: "fra1", FailoverRegions: []string{"cdg1"},
		KeepLastSnapshots: &api.KeepLastSnapshots{Count: api.IntOf(3), Expiration: api.IntOf(6000), DeleteEvicted: &no}, Interactive: true,
	})
}

func TestForkCopiesEverything(t *testing.T) {
	r := newRig(t)
	src := r.source(t)
	r.write(t, src.Session.ID, "x", "1")
	stopped := r.stop(t, src.Session.ID)
	got := r.fork(t, "a", api.ForkSandboxRequest{})
	if text := r.read(t, got.Session.ID, "x"); text != "1" || got.Session.SourceSnapshotID != stopped.Snapshot.ID || got.Resumed {
		t.Errorf("%q, %+v", text, got)
	}
	a, b := src.Sandbox, got.Sandbox
	if a.Name == b.Name || a.CurrentSessionID == b.CurrentSessionID || got.Routes[0].Subdomain == src.Routes[0].Subdomain {
		t.Errorf("not a sandbox of its own: %+v", got)
	}
	if got.Routes[0].Port != 3000 || got.Routes[1].Port != 80 || got.Session.InteractivePort == 0 {
		t.Errorf("%+v", got)
	}
	for _, sb := range []*api.Sandbox{&a, &b} {
		sb.Name, sb.CurrentSessionID, sb.CurrentSnapshotID, sb.CreatedAt, sb.UpdatedAt, sb.StatusUpdatedAt, sb.ExpiresAt = "", "", "", 0, 0, 0, 0
	}
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("settings (-source +fork):\n%s", d)
	}
	if out, _, _ := r.output(t, r.run(t, got.Session.ID, "env")); !slices.Contains(lines(out), "K=v") {
		t.Errorf("env %q", out)
	}
	// The source is as it was.
	if now, err := r.GetSandbox(t.Context(), "a", false); err != nil || now.Sandbox.Status != api.StatusStopped || now.Sandbox.CurrentSnapshotID != stopped.Snapshot.ID {
		t.Errorf("%+v, %v", now, err)
	}
}

func lines(s string) (out []string) {
	for start, i := 0, 0; i < len(s); i++ {
		if s[i] == '\n' {
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return out
}

func TestForkReplacesWhatIsGiven(t *testing.T) {
	r := newRig(t)
	src := r.source(t)
	r.write(t, src.Session.ID, "x", "1")
	r.stop(t, src.Session.ID)
	yes := true
	got := r.fork(t, "a", api.ForkSandboxRequest{
		Name: "b", Ports: &[]api.Int{api.IntOf(8080)}, Timeout: api.IntOf(9000), Resources: &api.Resources{VCPUs: api.IntOf(1)}, Persistent: &yes,
		NetworkPolicy: &api.NetworkPolicy{Mode: api.PolicyAllowAll}, Env: &map[string]string{"Q": "w"}, Tags: &map[string]string{},
		SnapshotExpiration: api.IntOf(0), KeepLastSnapshots: &api.KeepLastSnapshots{Count: api.IntOf(1)}, Region: "sfo1", FailoverRegions: &[]string{},
	})
	sb := got.Sandbox
	if sb.Name != "b" || sb.VCPUs != 1 || sb.Timeout != 9000 || sb.NetworkPolicy.Mode != api.PolicyAllowAll || len(sb.Tags) != 0 || sb.Region != "sfo1" ||
		len(sb.FailoverRegions) != 0 || *sb.SnapshotExpiration != 0 || sb.KeepLastSnapshots.Count != 1 || len(got.Routes) != 1 || got.Routes[0].Port != 8080 {
		t.Errorf("%+v", got)
	}
	if out, _, _ := r.output(t, r.run(t, got.Session.ID, "env")); slices.Contains(lines(out), "K=v") || !slices.Contains(lines(out), "Q=w") {
		t.Errorf("env %q", out)
	}
	// Another image: neither the disk nor the runtime come along.
	got = r.fork(t, "a", api.ForkSandboxRequest{Image: "custom"})
	if got.Sandbox.Runtime != "" || got.Session.SourceSnapshotID != "" || r.read(t, got.Session.ID, "x") != "" {
		t.Errorf("%+v", got)
	}
	fork := func(name string, req api.ForkSandboxRequest) error {
		_, err := r.ForkSandbox(t.Context(), name, req, "")
		return err
	}
	wantCode(t, fork("nobody", api.ForkSandboxRequest{}), api.CodeNotFound, "nobody")
	wantCode(t, fork("a", api.ForkSandboxRequest{Name: "b"}), api.CodeBadRequest, "already exists")
	wantCode(t, fork("a", api.ForkSandboxRequest{Name: "a"}), api.CodeBadRequest, "already exists")
	wantCode(t, fork("a", api.ForkSandboxRequest{Timeout: api.IntOf(1)}), api.CodeTimeoutInvalid, "timeout")
	wantCode(t, fork("a", api.ForkSandboxRequest{Region: "cdg1"}), api.CodeBadRequest, "failoverRegions")
}

func TestForkOfARunningOne(t *testing.T) {
	r := newRig(t)
	src := r.create(t, api.CreateSandboxRequest{Name: "a"})
	id := src.Session.ID
	// Nothing written: both start from the image.
	if got := r.fork(t, "a", api.ForkSandboxRequest{}); got.Session.SourceSnapshotID != "" {
		t.Errorf("%+v", got)
	}
	r.write(t, id, "x", "1")
	cmd := r.run(t, id, "sleep", "x")
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			got, err := r.ForkSandbox(t.Context(), "a", api.ForkSandboxRequest{Name: fmt.Sprint("f", i)}, "")
			if err != nil {
				t.Error(err)
				return
			}
			if text := r.read(t, got.Session.ID, "x"); text != "1" || got.Session.SourceSnapshotID == "" {
				t.Errorf("%q, %+v", text, got)
			}
			r.write(t, got.Session.ID, "x", "fork")
		})
	}
	wg.Wait()
	if text := r.read(t, id, "x"); text != "1" {
		t.Errorf("source has %q", text)
	}
	if now, err := r.GetCommand(t.Context(), id, cmd.ID); err != nil || now.ExitCode != nil {
		t.Errorf("the source's command: %+v, %v", now, err)
	}
	// Both go on from what they have, later too.
	got, err := r.GetSandbox(t.Context(), "f0", false)
	if err != nil {
		t.Fatal(err)
	}
	r.write(t, id, "y", "source")
	r.stop(t, id)
	r.stop(t, got.Session.ID)
	if id := r.resume(t, "f0").Session.ID; r.read(t, id, "x") != "fork" || r.read(t, id, "y") != "" {
		t.Error("the fork changed")
	}
	if id := r.resume(t, "a").Session.ID; r.read(t, id, "x") != "1" || r.read(t, id, "y") != "source" {
		t.Error("the source changed")
	}
	// Its first snapshot is the fork's own: it counts for that one's retention
	// and goes with it.
	page, err := r.ListSnapshots(t.Context(), api.ListSnapshotsQuery{Page: api.Page{Limit: 50, SortOrder: api.SortAsc}, Name: "f1"})
	if err != nil || len(page.Snapshots) != 1 || page.Snapshots[0].CreationMethod != "fork" || page.Snapshots[0].SourceSessionID != id {
		t.Errorf("%+v, %v", page, err)
	}
}

// A source that stops or takes a snapshot meanwhile is waited for.
func TestForkOfOneThatStops(t *testing.T) {
	r := newRig(t)
	saving, delay := make(chan struct{}), make(chan struct{})
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	r.write(t, id, "x", "1")
	r.node.last().onSave = func() error { close(saving); <-delay; return nil }
	var wg sync.WaitGroup
	wg.Go(func() { r.stop(t, id) })
	<-saving
	wg.Go(func() {
		got, err := r.ForkSandbox(t.Context(), "a", api.ForkSandboxRequest{}, "")
		if err != nil {
			t.Error(err)
			return
		}
		if text := r.read(t, got.Session.ID, "x"); text != "1" {
			t.Errorf("%q", text)
		}
	})
	close(delay)
	wg.Wait()
	// One that never kept a disk has its base to give.
	no := false
	id = r.create(t, api.CreateSandboxRequest{Name: "b", Persistent: &no}).Session.ID
	r.stop(t, id)
	if got := r.fork(t, "b", api.ForkSandboxRequest{}); got.Sandbox.Persistent || got.Session.SourceSnapshotID != "" {
		t.Errorf("%+v", got)
	}
}

func TestForkFails(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	r.write(t, id, "x", "1")
	m := r.node.last()
	m.onSave = func() error { return errors.New("no space left on device") }
	if _, err := r.ForkSandbox(t.Context(), "a", api.ForkSandboxRequest{Name: "b"}, ""); err == nil {
		t.Fatal("forked")
	}
	m.onSave = nil
	r.create(t, api.CreateSandboxRequest{Name: "b"})
	_, err := r.ForkSandbox(t.Context(), "a", api.ForkSandboxRequest{Name: "b"}, "")
	wantCode(t, err, api.CodeBadRequest, "already exists")
	r.node.disks.age()
	r.c.prune()
	r.settled()
	if got := slices.Collect(maps.Keys(r.node.disks.layers)); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	if text := r.read(t, id, "x"); text != "1" {
		t.Errorf("%q", text)
	}
	again, err := r.ForkSandbox(t.Context(), "a", api.ForkSandboxRequest{}, "key")
	if err != nil {
		t.Fatal(err)
	}
	if same, err := r.ForkSandbox(t.Context(), "a", api.ForkSandboxRequest{}, "key"); err != nil || same.Sandbox.Name != again.Sandbox.Name {
		t.Errorf("%+v, %v", same, err)
	}
}
