package storetest

import (
	"errors"
	"slices"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

const day = 24 * 60 * 60 * 1000

// kept is a snapshot of a session's disk at a time, with one layer more than
// its parent.
func kept(se store.Session, at int64, layers ...string) store.Snapshot {
	sn := store.Snapshot{
		ID: api.NewID(api.SnapshotPrefix), Project: se.Project, SandboxID: se.SandboxID, SandboxName: se.SandboxName, SessionID: se.ID,
		ParentID: se.SourceSnapshotID, CreatedAt: at, UpdatedAt: at, LastUsedAt: at, Expiration: day, ExpiresAt: at + day, Status: api.SnapshotCreated,
		Layers:       []store.SnapshotLayer{},
		SnapshotData: store.SnapshotData{Method: store.MadeAutomatically, Region: "iad1", Image: "i@sha256:0"},
	}
	for _, l := range layers {
		sn.Layers = append(sn.Layers, store.SnapshotLayer{Digest: l, Size: 5})
	}
	return sn
}

// end stops a session, which leaves sn.
func end(t *testing.T, s store.Store, se store.Session, sn store.Snapshot, r *store.Retention) {
	t.Helper()
	se.Status, se.UpdatedAt = api.StatusStopped, sn.CreatedAt
	if err := s.EndSession(t.Context(), se, &store.Kept{Snapshot: sn, Retention: r}); err != nil {
		t.Fatal(err)
	}
}

// next starts another session of a sandbox from a snapshot.
func next(t *testing.T, s store.Store, se store.Session, from string, at int64) store.Session {
	t.Helper()
	se.ID, se.CreatedAt, se.UpdatedAt, se.Status, se.SourceSnapshotID = api.NewID(api.SessionPrefix), at, at, api.StatusPending, from
	if err := s.AddSession(t.Context(), se); err != nil {
		t.Fatal(err)
	}
	return se
}

func status(t *testing.T, s store.Store, sn store.Snapshot) api.SnapshotStatus {
	t.Helper()
	got, err := s.Snapshot(t.Context(), sn.Project, sn.ID)
	if err != nil {
		t.Fatal(err)
	}
	return got.Status
}

func testSnapshots(t *testing.T, s store.Store) {
	ctx := t.Context()
	sb, se := create(t, s, "p", "one", 10)
	first := kept(se, 20, "sha256:a")
	key := store.Key{Project: "p", Scope: "snapshot", Key: "k", ResultID: first.ID, CreatedAt: 20}
	se.Status, se.UpdatedAt = api.StatusStopped, 20
	if err := s.EndSession(ctx, se, &store.Kept{Snapshot: first, Key: &key}); err != nil {
		t.Fatal(err)
	}
	want(t, "snapshot", first)(s.Snapshot(ctx, "p", first.ID))
	want(t, "key", key)(s.FindKey(ctx, "p", "snapshot", "k", 0))
	want(t, "project", "p")(s.ProjectOfSnapshot(ctx, first.ID))
	_, err := s.Snapshot(ctx, "q", first.ID)
	wantErr(t, "of another project", store.ErrNotFound, err)
	sb.CurrentSnapshotID, sb.Status, sb.StatusUpdatedAt = first.ID, api.StatusStopped, 20
	want(t, "is current", sb)(s.SandboxByID(ctx, sb.ID))

	// Use counts the expiry anew, at the start and at the end.
	se2 := next(t, s, se, first.ID, 30)
	first.LastUsedAt, first.ExpiresAt = 30, 30+day
	want(t, "used", first)(s.Snapshot(ctx, "p", first.ID))
	second := kept(se2, 40, "sha256:a", "sha256:b")
	end(t, s, se2, second, nil)
	first.LastUsedAt, first.ExpiresAt = 40, 40+day
	want(t, "used until then", first)(s.Snapshot(ctx, "p", first.ID))
	want(t, "children", []store.Snapshot{second})(s.ChildSnapshots(ctx, "p", first.ID))
	want(t, "layers", map[string]bool{"sha256:a": true, "sha256:b": true})(s.LayersInUse(ctx))

	merged := []store.SnapshotLayer{{Digest: "sha256:m", Size: 9}}
	wantErr(t, "layers that are not its own", store.ErrNotFound, s.ReplaceLayers(ctx, second.ID, first.Layers, merged))
	if err := s.ReplaceLayers(ctx, second.ID, second.Layers, merged); err != nil {
		t.Fatal(err)
	}
	second.Layers = merged
	want(t, "merged", second)(s.Snapshot(ctx, "p", second.ID))

	first.Status, first.UpdatedAt = api.SnapshotDeleted, 50
	for at := range int64(2) { // the second time changes nothing
		want(t, "deleted", first)(s.DeleteSnapshot(ctx, "p", first.ID, 50+at))
	}
	_, err = s.DeleteSnapshot(ctx, "q", second.ID, 50)
	wantErr(t, "delete another project's", store.ErrNotFound, err)
	want(t, "layers in use", map[string]bool{"sha256:m": true})(s.LayersInUse(ctx))
	third := se
	third.ID, third.SourceSnapshotID = api.NewID(api.SessionPrefix), first.ID
	wantErr(t, "start from a deleted one", store.ErrGone, s.AddSession(ctx, third))
	other, otherSession := made("p", "two", 60)
	otherSession.SourceSnapshotID = first.ID
	wantErr(t, "create from a deleted one", store.ErrGone, s.CreateSandbox(ctx, other, otherSession, nil))
	_, err = s.UpdateSandbox(ctx, sb.ID, func(b *store.Sandbox) error { b.CurrentSnapshotID = first.ID; return nil })
	wantErr(t, "roll back to a deleted one", store.ErrGone, err)

	list, cursor, err := s.ListSnapshots(ctx, "p", api.ListSnapshotsQuery{Page: api.Page{Limit: 1, SortOrder: api.SortDesc}, Name: "one"})
	want(t, "first page", []store.Snapshot{second})(list, err)
	list, cursor, err = s.ListSnapshots(ctx, "p", api.ListSnapshotsQuery{Page: api.Page{Limit: 1, SortOrder: api.SortDesc, Cursor: cursor}})
	want(t, "second page", []store.Snapshot{first})(list, err)
	list, _, err = s.ListSnapshots(ctx, "q", api.ListSnapshotsQuery{Page: api.Page{Limit: 1, SortOrder: api.SortDesc}})
	want(t, "of another project", []store.Snapshot{})(list, err)
	if cursor != "" {
		t.Errorf("cursor %q after the last page", cursor)
	}
}

func testRollBack(t *testing.T, s store.Store) {
	ctx := t.Context()
	sb, se := create(t, s, "p", "one", 10)
	first := kept(se, 20)
	end(t, s, se, first, nil)
	se = next(t, s, se, first.ID, 30)
	if _, err := s.UpdateSandbox(ctx, sb.ID, func(b *store.Sandbox) error { b.CurrentSnapshotID, b.RolledBack = first.ID, true; return nil }); err != nil {
		t.Fatal(err)
	}
	second := kept(se, 40)
	end(t, s, se, second, nil)
	if got, err := s.SandboxByID(ctx, sb.ID); err != nil || got.CurrentSnapshotID != first.ID {
		t.Fatalf("the choice was lost: %+v, %v", got, err)
	}
	se = next(t, s, se, first.ID, 50)
	third := kept(se, 60)
	end(t, s, se, third, nil)
	if got, err := s.SandboxByID(ctx, sb.ID); err != nil || got.CurrentSnapshotID != third.ID || got.RolledBack {
		t.Fatalf("the choice held for longer than one session: %+v, %v", got, err)
	}

	// A session that does not start was never there.
	before, _ := s.SandboxByID(ctx, sb.ID)
	gone := next(t, s, se, third.ID, 70)
	if err := s.RemoveSession(ctx, gone.ID); err != nil {
		t.Fatal(err)
	}
	after, err := s.SandboxByID(ctx, sb.ID)
	if err != nil || after.CurrentSessionID != before.CurrentSessionID || after.Status != before.Status {
		t.Fatalf("after: %+v, %v", after, err)
	}
	wantErr(t, "again", store.ErrNotFound, s.RemoveSession(ctx, gone.ID))
}

func testExpiry(t *testing.T, s store.Store) {
	ctx := t.Context()
	_, se := create(t, s, "p", "one", 10)
	var all []store.Snapshot
	for i, expiration := range []int64{100, 0, 300} {
		sn := kept(se, int64(1000+i))
		if sn.Expiration, sn.ExpiresAt = expiration, 0; expiration > 0 {
			sn.ExpiresAt = sn.CreatedAt + expiration
		}
		if err := s.AddSnapshot(ctx, sn); err != nil {
			t.Fatal(err)
		}
		all = append(all, sn)
	}
	expire := func(now int64, wantN int, wantNext int64) {
		t.Helper()
		if n, next, err := s.ExpireSnapshots(ctx, now); n != wantN || next != wantNext || err != nil {
			t.Fatalf("at %d: %d, next %d, %v; want %d, %d", now, n, next, err, wantN, wantNext)
		}
	}
	expire(1099, 0, 1100)
	late := se
	late.ID, late.SourceSnapshotID, late.CreatedAt = api.NewID(api.SessionPrefix), all[0].ID, 1100
	wantErr(t, "expired, though not swept yet", store.ErrGone, s.AddSession(ctx, late))
	se = next(t, s, se, all[2].ID, 1050) // uses the third
	expire(1100, 1, 1350)
	expire(1400, 0, 0) // a session runs from it
	se.Status, se.UpdatedAt = api.StatusStopped, 1500
	if err := s.UpdateSession(ctx, se); err != nil {
		t.Fatal(err)
	}
	expire(1600, 0, 1800)
	expire(1800, 1, 0)
	expire(day, 0, 0)
	for i, want := range []api.SnapshotStatus{api.SnapshotDeleted, api.SnapshotCreated, api.SnapshotDeleted} {
		if got := status(t, s, all[i]); got != want {
			t.Errorf("snapshot %d: %s, want %s", i, got, want)
		}
	}
}

func testRetention(t *testing.T, s store.Store) {
	_, se := create(t, s, "p", "one", 10)
	other, otherSession := create(t, s, "p", "two", 10)
	var all []store.Snapshot
	add := func(r *store.Retention) {
		t.Helper()
		at := int64(100 * (len(all) + 1))
		se = next(t, s, se, "", at)
		sn := kept(se, at)
		end(t, s, se, sn, r)
		all = append(all, sn)
	}
	deleted := func(want ...int) {
		t.Helper()
		var got []int
		for i, sn := range all {
			if status(t, s, sn) == api.SnapshotDeleted {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("deleted %v, want %v", got, want)
		}
	}
	for range 3 {
		add(nil)
	}
	if _, err := s.UpdateSandbox(t.Context(), other.ID, func(b *store.Sandbox) error { b.CurrentSnapshotID = all[1].ID; return nil }); err != nil {
		t.Fatal(err)
	}
	add(&store.Retention{Count: 2, Delete: true})
	deleted(0) // the second is another sandbox's current one
	runs := next(t, s, otherSession, all[2].ID, 450)
	add(&store.Retention{Count: 1, Delete: true})
	deleted(0, 3)
	add(&store.Retention{Count: 1, Expiration: 77})
	deleted(0, 3)
	if got, err := s.Snapshot(t.Context(), "p", all[4].ID); err != nil || got.Expiration != 77 || got.ExpiresAt != 600+77 {
		t.Fatalf("evicted: %+v, %v", got, err)
	}
	if n, err := s.DeleteOrphans(t.Context(), se.SandboxID, 700); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	deleted(0, 3, 4, 5)
	runs.Status = api.StatusFailed
	if err := errors.Join(s.UpdateSession(t.Context(), runs), s.DeleteSandbox(t.Context(), other.ID)); err != nil {
		t.Fatal(err)
	}
	if n, err := s.DeleteOrphans(t.Context(), se.SandboxID, 800); n != 2 || err != nil {
		t.Fatal(n, err)
	}
}

// testForgotten: a deleted snapshot is known for some time, or for as long as a
// sandbox would start from it; one of a sandbox that was never made goes.
func testForgotten(t *testing.T, s store.Store) {
	ctx := t.Context()
	_, se := create(t, s, "p", "one", 10)
	gone, current, half, used := kept(se, 20), kept(se, 30), kept(se, 40), kept(se, 50)
	half.Provisional, used.Provisional = true, true
	for _, sn := range []store.Snapshot{gone, half, used} {
		if err := s.AddSnapshot(ctx, sn); err != nil {
			t.Fatal(err)
		}
	}
	end(t, s, se, current, nil)
	runs := next(t, s, se, used.ID, 60)
	if n, err := s.DeleteProvisional(ctx, 70); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if status(t, s, half) != api.SnapshotDeleted || status(t, s, used) != api.SnapshotCreated {
		t.Error("others are deleted than those of sandboxes that were never made")
	}
	runs.Status = api.StatusFailed
	if err := s.UpdateSession(ctx, runs); err != nil {
		t.Fatal(err)
	}
	for _, sn := range []store.Snapshot{gone, current} {
		if _, err := s.DeleteSnapshot(ctx, "p", sn.ID, 80); err != nil {
			t.Fatal(err)
		}
	}
	later := 80 + store.KeepDeleted.Milliseconds()
	if _, _, err := s.ExpireSnapshots(ctx, later); err != nil {
		t.Fatal(err)
	}
	if status(t, s, gone) != api.SnapshotDeleted {
		t.Error("it is forgotten too early")
	}
	if _, _, err := s.ExpireSnapshots(ctx, later+1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshot(ctx, "p", gone.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleted long ago: %v", err)
	}
	if status(t, s, current) != api.SnapshotDeleted {
		t.Error("the one that a sandbox would start from is forgotten")
	}
}

func testImageInUse(t *testing.T, s store.Store) {
	ctx := t.Context()
	sb, se := create(t, s, "p", "one", 10)
	sn := kept(se, 20)
	end(t, s, se, sn, nil)
	if err := s.DeleteSandbox(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	want(t, "of a snapshot", true)(s.ImageInUse(ctx, "sha256:0"))
	want(t, "another", false)(s.ImageInUse(ctx, "sha256:00"))
	if _, err := s.DeleteSnapshot(ctx, "p", sn.ID, 30); err != nil {
		t.Fatal(err)
	}
	want(t, "of a deleted snapshot", false)(s.ImageInUse(ctx, "sha256:0"))
	persistent, _ := create(t, s, "p", "two", 40)
	want(t, "of a sandbox", true)(s.ImageInUse(ctx, "sha256:0"))
	if err := s.DeleteSandbox(ctx, persistent.ID); err != nil {
		t.Fatal(err)
	}
	once, se := made("p", "three", 50)
	once.Persistent, se.Image = false, once.Image
	if err := s.CreateSandbox(ctx, once, se, nil); err != nil {
		t.Fatal(err)
	}
	want(t, "of a session", true)(s.ImageInUse(ctx, "sha256:0"))
	se.Status, se.UpdatedAt = api.StatusStopped, 60
	if err := s.EndSession(ctx, se, nil); err != nil {
		t.Fatal(err)
	}
	want(t, "of what cannot start again", false)(s.ImageInUse(ctx, "sha256:0"))
}
