package storetest

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

func testDrives(t *testing.T, s store.Store) {
	ctx := t.Context()
	drive := func(project, name string, at int64) store.Drive {
		d := store.Drive{ID: api.NewID(api.DrivePrefix), Project: project, Name: name, Region: "iad1", MaxBytes: 5 << 30,
			CreatedAt: at, UpdatedAt: at, Layers: []store.SnapshotLayer{}}
		if err := s.AddDrive(ctx, d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	one, two := drive("p", "one", 10), drive("p", "two", 20)
	drive("q", "one", 30)
	if err := s.AddDrive(ctx, store.Drive{ID: "drv_x", Project: "p", Name: "one"}); !errors.Is(err, store.ErrExists) {
		t.Errorf("a name that is taken: %v", err)
	}
	for _, by := range []string{"one", one.ID} {
		if got, err := s.Drive(ctx, "p", by); err != nil || !cmp.Equal(got, one) {
			t.Errorf("by %s: %v, %v", by, got, err)
		}
	}
	if _, err := s.Drive(ctx, "q", two.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of another project: %v", err)
	}
	// A session's end keeps what it wrote to its drives, with the session.
	_, se := create(t, s, "p", "sandbox", 40)
	se.Status, se.UpdatedAt = api.StatusStopped, 50
	a, b := store.SnapshotLayer{Digest: "sha256:a", Size: 1}, store.SnapshotLayer{Digest: "sha256:b", Size: 2}
	if err := s.EndSession(ctx, se, nil, store.DriveState{ID: one.ID, At: 50, Layers: []store.SnapshotLayer{a, b}}, store.DriveState{ID: "drv_gone", At: 50}); err != nil {
		t.Fatal(err)
	}
	one.UpdatedAt, one.Layers = 50, []store.SnapshotLayer{a, b}
	if got, err := s.Drive(ctx, "p", "one"); err != nil || !cmp.Equal(got, one) {
		t.Errorf("written: %v, %v", got, err)
	}
	if err := s.ReplaceDriveLayers(ctx, one.ID, []store.SnapshotLayer{a}, []store.SnapshotLayer{b}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("other layers than it has: %v", err)
	}
	if err := s.ReplaceDriveLayers(ctx, one.ID, one.Layers, []store.SnapshotLayer{b}); err != nil {
		t.Error(err)
	}
	if used, err := s.LayersInUse(ctx); err != nil || !cmp.Equal(used, map[string]bool{"sha256:b": true}) {
		t.Errorf("layers in use: %v, %v", used, err)
	}
	names := func(q api.ListDrivesQuery) (out []string) {
		t.Helper()
		for q.Limit = 1; ; {
			list, next, err := s.ListDrives(ctx, "p", q)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range list {
				out = append(out, d.Name)
			}
			if q.Cursor = next; next == "" {
				return out
			}
		}
	}
	for by, want := range map[string][]string{api.SortCreatedAt: {"one", "two"}, api.SortUpdatedAt: {"two", "one"}, api.SortName: {"one", "two"}} {
		if got := names(api.ListDrivesQuery{Page: api.Page{SortOrder: api.SortAsc}, SortBy: by}); !cmp.Equal(got, want) {
			t.Errorf("by %s: %q, want %q", by, got, want)
		}
	}
	if got := names(api.ListDrivesQuery{Page: api.Page{SortOrder: api.SortDesc}, SortBy: api.SortName, NamePrefix: "tw"}); !cmp.Equal(got, []string{"two"}) {
		t.Errorf("by prefix: %q", got)
	}
	if err := s.DeleteDrive(ctx, one.ID); err != nil {
		t.Error(err)
	}
	if err := s.DeleteDrive(ctx, one.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
	if used, err := s.LayersInUse(ctx); err != nil || len(used) > 0 {
		t.Errorf("layers in use after the deletion: %v, %v", used, err)
	}
}
