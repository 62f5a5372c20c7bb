package control

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/api"
)

func TestDiffSnapshots(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	a := r.create(t, api.CreateSandboxRequest{Name: "a"})
	r.write(t, a.Session.ID, "x", "1")
	first := r.stop(t, a.Session.ID).Snapshot.ID
	a = r.resume(t, "a")
	r.write(t, a.Session.ID, "y\xff", "2")
	second := r.stop(t, a.Session.ID).Snapshot.ID
	got, err := r.DiffSnapshots(ctx, first, second)
	want := &api.SnapshotDiff{Changes: []api.SnapshotChange{{Kind: "added", Path: "/vercel/sandbox/y\uFFFD"}}}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
	_, err = r.DiffSnapshots(ctx, first, "snap_none")
	wantCode(t, err, api.CodeNotFound, "snap_none")
	if _, err := r.DeleteSnapshot(ctx, first); err != nil {
		t.Fatal(err)
	}
	_, err = r.DiffSnapshots(ctx, first, second)
	wantCode(t, err, api.CodeSnapshotNotFound, first)
}
