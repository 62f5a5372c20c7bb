package control

import (
	"bytes"
	"math"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/scratch"
)

// Where the host's disk is as full as it may be nothing new comes to it, what
// runs goes on, and what stops is kept.
func TestReserve(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	a := r.create(t, api.CreateSandboxRequest{Name: "a"})
	r.write(t, a.Session.ID, "x", "1")
	r.c.cfg.Reserve = &scratch.Reserve{Dir: r.dir, Bytes: math.MaxInt64 / 2}
	const code = api.CodeInsufficientStorage
	_, err := r.CreateSandbox(ctx, api.CreateSandboxRequest{Name: "b"}, "")
	wantCode(t, err, code, "reserve", "prune")
	_, err = r.GetSandbox(ctx, "b", false)
	wantCode(t, err, api.CodeNotFound)
	_, err = r.ForkSandbox(ctx, "a", api.ForkSandboxRequest{Name: "b"}, "")
	wantCode(t, err, code, "reserve")
	wantCode(t, r.WriteFiles(ctx, a.Session.ID, "/", bytes.NewReader(gz(t, makeTar(t, "y", "2")))), code, "reserve")
	cmd := r.run(t, a.Session.ID, "true")
	if rec, err := r.c.store.Command(ctx, a.Session.ID, cmd.ID); err != nil || rec.LogLimit != leastLog {
		t.Errorf("%d bytes of output are kept, %v", rec.LogLimit, err)
	}
	full := r.c.cfg.Reserve.Check()
	m := r.node.last()
	var asked []node.Save
	m.onSave = func() error { return full }
	_, err = r.CreateSnapshot(ctx, a.Session.ID, api.CreateSnapshotRequest{}, "")
	wantCode(t, err, code, "reserve")
	m.onSave = nil
	m.onSaved = func(what node.Save) { asked = append(asked, what) }
	stopped := r.stop(t, a.Session.ID)
	if stopped.Snapshot == nil || len(asked) != 1 || !asked[0].UseReserve {
		t.Errorf("%+v was kept, of %+v", stopped.Snapshot, asked)
	}
	_, err = r.GetSandbox(ctx, "a", true)
	wantCode(t, err, code, "reserve")
	r.c.cfg.Reserve = nil
	if again := r.resume(t, "a"); r.read(t, again.Session.ID, "x") != "1" {
		t.Error("what was kept is another")
	}
}
