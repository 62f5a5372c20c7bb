package control

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/driver"
)

func (r *rig) snapshot(t *testing.T, id string, expiration api.Int) api.Snapshot {
	t.Helper()
	out, err := r.CreateSnapshot(t.Context(), id, api.CreateSnapshotRequest{Expiration: expiration}, "")
	if err != nil {
		t.Fatal(err)
	}
	return out.Snapshot
}

func fromSnapshot(id string) *api.Source {
	return &api.Source{Type: api.SourceSnapshot, SnapshotID: id}
}

// settled waits for what runs in the background after a session's end.
func (r *rig) settled() {
	r.c.mergeMu.Lock()
	r.c.mergeMu.Unlock() //nolint:staticcheck // the wait is the purpose
	for r.c.pruning.Load() {
		time.Sleep(time.Millisecond)
	}
	r.c.layersMu.Lock()
	r.c.layersMu.Unlock() //nolint:staticcheck // the wait is the purpose
}

// chain is how many layers a snapshot has.
func (r *rig) chain(t *testing.T, id string) int {
	t.Helper()
	sn, err := r.c.store.Snapshot(t.Context(), "p", id)
	if err != nil {
		t.Fatal(err)
	}
	return len(sn.Layers)
}

func TestSnapshot(t *testing.T) {
	r := newRig(t)
	saving, delay := make(chan struct{}), make(chan struct{})
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	r.write(t, id, "x", "1")
	cmd := r.run(t, id, "sleep", "x")
	r.node.last().onSave = func() error { close(saving); <-delay; return nil }
	var made *api.CreateSnapshotResponse
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		if made, err = r.CreateSnapshot(t.Context(), id, api.CreateSnapshotRequest{}, "key"); err != nil {
			t.Error(err)
		}
	})
	<-saving
	for name, use := range r.uses(id) {
		t.Run("meanwhile "+name, func(t *testing.T) { wantCode(t, use(), api.CodeSandboxSnapshotting) })
	}
	if got, err := r.GetSandbox(t.Context(), "a", false); err != nil || got.Sandbox.Status != api.StatusSnapshotting {
		t.Errorf("%+v, %v", got, err)
	}
	wg.Go(func() { r.stop(t, id) })
	close(delay)
	wg.Wait()
	sn := made.Snapshot
	if sn.Status != api.SnapshotCreated || sn.SourceSessionID != id || sn.ParentID != "" || sn.CreationMethod != "manual" ||
		sn.ExpiresAt != sn.CreatedAt+api.DefaultSnapshotExpiration.Milliseconds() || made.Session.Status != api.StatusStopped || made.Session.SnapshottedAt == 0 {
		t.Fatalf("%+v", made)
	}
	if again, err := r.CreateSnapshot(t.Context(), id, api.CreateSnapshotRequest{}, "key"); err != nil || again.Snapshot.ID != sn.ID {
		t.Errorf("repeated: %+v, %v", again, err)
	}
	if _, _, code := r.output(t, cmd); code != 137 {
		t.Errorf("command ended with %d", code)
	}
	got := r.resume(t, "a")
	if text := r.read(t, got.Session.ID, "x"); text != "1" || got.Session.SourceSnapshotID != sn.ID {
		t.Errorf("%q, %+v", text, got.Session)
	}
	r.write(t, got.Session.ID, "x", "2")
	next := r.snapshot(t, got.Session.ID, api.IntOf(0))
	if next.ParentID != sn.ID || next.ExpiresAt != 0 {
		t.Errorf("%+v", next)
	}
	_, err := r.CreateSnapshot(t.Context(), id, api.CreateSnapshotRequest{Expiration: api.IntOf(-1)}, "")
	wantCode(t, err, api.CodeBadRequest, "expiration")
}

func TestSnapshotOfOneThatIsNotPersistent(t *testing.T) {
	r := newRig(t)
	no := false
	id := r.create(t, api.CreateSandboxRequest{Name: "a", Persistent: &no}).Session.ID
	r.write(t, id, "x", "1")
	sn := r.snapshot(t, id, api.Int{})
	_, err := r.GetSandbox(t.Context(), "a", true)
	wantCode(t, err, api.CodeSandboxStopped, "not persistent")
	_, err = r.RunCommand(t.Context(), id, api.RunCommandRequest{Command: "true"}, "")
	wantCode(t, err, api.CodeSandboxStopped)
	got := r.create(t, api.CreateSandboxRequest{Source: fromSnapshot(sn.ID)})
	if text := r.read(t, got.Session.ID, "x"); text != "1" {
		t.Errorf("%q", text)
	}
}

// A snapshot that cannot be taken leaves the session running: its machine has
// the only copy of the disk.
func TestSnapshotFails(t *testing.T) {
	r := newRig(t)
	got := r.create(t, api.CreateSandboxRequest{Name: "a", Timeout: api.IntOf(60_000)})
	id, m := got.Session.ID, r.node.last()
	r.write(t, id, "x", "1")
	m.onSave = func() error { return errors.New("no space left on device") }
	_, err := r.CreateSnapshot(t.Context(), id, api.CreateSnapshotRequest{}, "")
	if _, ok := errors.AsType[*api.Error](err); ok || err == nil {
		t.Fatalf("want an error of the server's own, got %v", err)
	}
	if text := r.read(t, id, "x"); text != "1" {
		t.Fatalf("%q", text)
	}
	now, err := r.GetSandbox(t.Context(), "a", false)
	if err != nil || now.Sandbox.Status != api.StatusRunning || now.Sandbox.ExpiresAt != got.Sandbox.ExpiresAt || now.Session.SnapshottedAt != 0 {
		t.Fatalf("%+v, %v", now, err)
	}
	// A stop that comes meanwhile is not forgotten, and keeps the disk.
	saving, delay := make(chan struct{}), make(chan struct{})
	m.onSave = func() error {
		close(saving)
		<-delay
		m.onSave = nil
		return errors.New("no space left on device")
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := r.CreateSnapshot(t.Context(), id, api.CreateSnapshotRequest{}, ""); err == nil {
			t.Error("taken")
		}
	})
	<-saving
	wg.Go(func() { r.stop(t, id) })
	for r.c.liveSession("p", id).stopWanted() == false {
		time.Sleep(time.Millisecond)
	}
	close(delay)
	wg.Wait()
	if text := r.read(t, r.resume(t, "a").Session.ID, "x"); text != "1" {
		t.Fatalf("%q", text)
	}

	// With the machine lost as well the client must not come back for an
	// older disk.
	id, m = r.resume(t, "a").Session.ID, r.node.last()
	m.onSave = func() error { m.die(driver.ErrKernel); return driver.ErrStopped }
	_, err = r.CreateSnapshot(t.Context(), id, api.CreateSnapshotRequest{}, "")
	wantCode(t, err, api.CodeConflict, "no snapshot was taken")
	if s, _ := r.GetSession(t.Context(), id); s.Session.Status != api.StatusFailed {
		t.Errorf("%+v", s.Session)
	}
}

func (s *session) stopWanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopNext != nil
}

func TestCreateFromSnapshot(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	r.write(t, id, "x", "1")
	sn := r.snapshot(t, id, api.IntOf(100_000))
	r.clock.advance(50 * time.Second)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			got := r.create(t, api.CreateSandboxRequest{Name: fmt.Sprint("copy-", i), Source: fromSnapshot(sn.ID),
				Resources: &api.Resources{VCPUs: api.IntOf(4)}, Env: map[string]string{"A": "b"}, Ports: []api.Int{api.IntOf(80)}})
			if got.Session.SourceSnapshotID != sn.ID || got.Sandbox.VCPUs != 4 || got.Sandbox.CurrentSnapshotID != sn.ID {
				t.Errorf("%+v", got)
			}
			if text := r.read(t, got.Session.ID, "x"); text != "1" {
				t.Errorf("%q", text)
			}
			r.write(t, got.Session.ID, "x", "mine")
		})
	}
	wg.Wait()
	used, err := r.GetSnapshot(t.Context(), sn.ID)
	if err != nil || used.LastUsedAt != sn.CreatedAt+50_000 || used.ExpiresAt != used.LastUsedAt+100_000 {
		t.Errorf("%+v, %v", used, err)
	}
	create := func(req api.CreateSandboxRequest) error { _, err := r.CreateSandbox(t.Context(), req, ""); return err }
	wantCode(t, create(api.CreateSandboxRequest{Source: fromSnapshot(sn.ID), Runtime: "node24"}), api.CodeBadRequest, "source")
	wantCode(t, create(api.CreateSandboxRequest{Source: fromSnapshot("snap_none")}), api.CodeNotFound, "snap_none")
	if _, err := r.DeleteSnapshot(t.Context(), sn.ID); err != nil {
		t.Fatal(err)
	}
	wantCode(t, create(api.CreateSandboxRequest{Source: fromSnapshot(sn.ID)}), api.CodeSnapshotNotFound, sn.ID)
	other, err := r.c.Project(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.CreateSandbox(t.Context(), api.CreateSandboxRequest{Source: fromSnapshot(sn.ID)}, "")
	wantCode(t, err, api.CodeNotFound, sn.ID)
	// Those that run from it go on, and keep their disks.
	got, err := r.GetSandbox(t.Context(), "copy-3", false)
	if err != nil {
		t.Fatal(err)
	}
	r.settled()
	r.stop(t, got.Session.ID)
	if text := r.read(t, r.resume(t, "copy-3").Session.ID, "x"); text != "mine" {
		t.Errorf("%q", text)
	}
}

func TestExpiry(t *testing.T) {
	r := newRig(t)
	hour := api.IntOf(3_600_000)
	id := r.create(t, api.CreateSandboxRequest{Name: "a", SnapshotExpiration: hour}).Session.ID
	r.write(t, id, "x", "1")
	sn := *r.stop(t, id).Snapshot
	if sn.ExpiresAt != sn.CreatedAt+3_600_000 {
		t.Errorf("%+v", sn)
	}
	r.clock.advance(59 * time.Minute)
	id = r.resume(t, "a").Session.ID // used: an hour more
	r.clock.advance(4 * time.Minute)
	r.stop(t, id)
	r.clock.advance(59 * time.Minute)
	id = r.resume(t, "a").Session.ID
	r.stop(t, id)
	r.clock.blockUntilDue(time.Hour) // what came of the stop has been done
	r.node.disks.age()
	r.clock.advance(time.Hour)
	if got, err := r.GetSnapshot(t.Context(), sn.ID); err != nil || got.Status != api.SnapshotDeleted {
		t.Errorf("%+v, %v", got, err)
	}
	_, err := r.GetSandbox(t.Context(), "a", true)
	wantCode(t, err, api.CodeSnapshotNotFound, "expired")
	for r.node.disks.count() > 0 { // pruned
		time.Sleep(time.Millisecond)
	}
}

func TestKeepLast(t *testing.T) {
	r := newRig(t)
	keep := &api.KeepLastSnapshots{Count: api.IntOf(2), Expiration: api.IntOf(0)}
	id := r.create(t, api.CreateSandboxRequest{Name: "a", KeepLastSnapshots: keep}).Session.ID
	var all []string
	for i := range 4 {
		r.write(t, id, "x", fmt.Sprint(i))
		sn := r.stop(t, id).Snapshot
		if sn.ExpiresAt != 0 {
			t.Errorf("%+v", sn)
		}
		all = append(all, sn.ID)
		r.clock.advance(time.Second)
		id = r.resume(t, "a").Session.ID
	}
	page, err := r.ListSnapshots(t.Context(), api.ListSnapshotsQuery{Page: api.Page{Limit: 50, SortOrder: api.SortAsc}, Name: "a"})
	if err != nil || len(page.Snapshots) != 4 {
		t.Fatalf("%+v, %v", page, err)
	}
	for i, sn := range page.Snapshots {
		if want := map[bool]api.SnapshotStatus{true: api.SnapshotDeleted, false: api.SnapshotCreated}[i < 2]; sn.Status != want || sn.ID != all[i] {
			t.Errorf("%d: %+v", i, sn)
		}
	}
	no := false
	update := api.UpdateSandboxRequest{KeepLastSnapshots: api.ValueOf(api.KeepLastSnapshots{Count: api.IntOf(1), DeleteEvicted: &no})}
	if _, err := r.UpdateSandbox(t.Context(), "a", update); err != nil {
		t.Fatal(err)
	}
	r.write(t, id, "x", "last")
	r.stop(t, id)
	got, err := r.GetSnapshot(t.Context(), all[3])
	if err != nil || got.Status != api.SnapshotCreated || got.ExpiresAt != r.c.now()+api.DefaultSnapshotExpiration.Milliseconds() {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRollBack(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	r.write(t, id, "x", "1")
	first := r.stop(t, id).Snapshot
	id = r.resume(t, "a").Session.ID
	r.write(t, id, "x", "2")
	second := r.stop(t, id).Snapshot
	back := func(to string) {
		t.Helper()
		out, err := r.UpdateSandbox(t.Context(), "a", api.UpdateSandboxRequest{CurrentSnapshotID: to})
		if err != nil || out.Sandbox.CurrentSnapshotID != to {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	back(first.ID)
	got := r.resume(t, "a")
	if text := r.read(t, got.Session.ID, "x"); text != "1" || got.Session.SourceSnapshotID != first.ID {
		t.Errorf("%q, %+v", text, got)
	}
	// While it runs: the next session, and what it wrote is kept beside.
	back(first.ID)
	r.write(t, got.Session.ID, "x", "3")
	stopped := r.stop(t, got.Session.ID)
	if stopped.Sandbox.CurrentSnapshotID != first.ID || stopped.Snapshot == nil || stopped.Snapshot.ParentID != first.ID {
		t.Errorf("%+v", stopped)
	}
	got = r.resume(t, "a")
	if text := r.read(t, got.Session.ID, "x"); text != "1" {
		t.Errorf("%q", text)
	}
	r.stop(t, got.Session.ID)
	_, err := r.UpdateSandbox(t.Context(), "a", api.UpdateSandboxRequest{CurrentSnapshotID: "snap_none"})
	wantCode(t, err, api.CodeNotFound, "snap_none")
	if _, err := r.DeleteSnapshot(t.Context(), second.ID); err != nil {
		t.Fatal(err)
	}
	_, err = r.UpdateSandbox(t.Context(), "a", api.UpdateSandboxRequest{CurrentSnapshotID: second.ID})
	wantCode(t, err, api.CodeSnapshotNotFound, second.ID)
}

func TestTree(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	var line []string
	for i := range 4 {
		r.write(t, id, "x", fmt.Sprint(i))
		line = append(line, r.stop(t, id).Snapshot.ID)
		id = r.resume(t, "a").Session.ID
	}
	side := r.create(t, api.CreateSandboxRequest{Name: "b", Source: fromSnapshot(line[0])}).Session.ID
	r.write(t, side, "y", "1")
	branch := r.stop(t, side).Snapshot.ID // a younger child of the first

	tree := func(q api.SnapshotTreeQuery) *api.SnapshotTree {
		t.Helper()
		out, err := r.SnapshotTree(t.Context(), q)
		if err != nil || out.Anchor == nil || out.Anchor.Snapshot.ID != q.SnapshotID || out.Pagination.Count != len(out.Snapshots) {
			t.Fatalf("%+v, %v", out, err)
		}
		return out
	}
	ids := func(nodes []api.SnapshotNode) (out []string) {
		for _, n := range nodes {
			out = append(out, n.Snapshot.ID)
		}
		return out
	}
	up := tree(api.SnapshotTreeQuery{SnapshotID: line[3], Limit: 2, SortOrder: api.SortDesc})
	if got := ids(up.Snapshots); !slices.Equal(got, []string{line[2], line[1]}) || *up.Pagination.Next != line[1] {
		t.Errorf("%v, next %v", got, up.Pagination.Next)
	}
	if n := up.Snapshots[1]; n.Count != "2" || len(n.Siblings) != 1 || n.Siblings[0].ID != branch {
		t.Errorf("%+v", n)
	}
	up = tree(api.SnapshotTreeQuery{SnapshotID: *up.Pagination.Next, Limit: 2, SortOrder: api.SortDesc})
	if got := ids(up.Snapshots); !slices.Equal(got, line[:1]) || up.Pagination.Next != nil || up.Snapshots[0].Count != "1" {
		t.Errorf("%v, %+v", got, up)
	}
	down := tree(api.SnapshotTreeQuery{SnapshotID: line[1], Limit: 50, SortOrder: api.SortAsc})
	if got := ids(down.Snapshots); !slices.Equal(got, line[2:]) || down.Pagination.Next != nil {
		t.Errorf("%v", got)
	}
	if got := ids(tree(api.SnapshotTreeQuery{SnapshotID: line[0], Limit: 1, SortOrder: api.SortAsc}).Snapshots); !slices.Equal(got, []string{branch}) {
		t.Errorf("%v", got)
	}
	_, err := r.SnapshotTree(t.Context(), api.SnapshotTreeQuery{SnapshotID: "snap_none", Limit: 1, SortOrder: api.SortAsc})
	wantCode(t, err, api.CodeNotFound)
}

// Layers go when nothing needs them, long chains become short, and what runs
// or can be resumed is never touched.
func TestLayers(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	for i := range 3 * maxChain {
		r.clock.advance(time.Second)
		r.write(t, id, fmt.Sprint(i), "x")
		sn := r.stop(t, id).Snapshot
		for r.chain(t, sn.ID) > maxChain { // merged in the background
			time.Sleep(time.Millisecond)
		}
		id = r.resume(t, "a").Session.ID
		if n := len(r.node.last().spec.Layers); n > maxChain+1 {
			t.Fatalf("%d layers", n)
		}
	}
	if r.node.disks.merges == 0 {
		t.Error("nothing was merged")
	}
	r.clock.advance(time.Second)
	r.stop(t, id)
	r.settled()
	r.node.disks.age()
	page, err := r.ListSnapshots(t.Context(), api.ListSnapshotsQuery{Page: api.Page{Limit: 50, SortOrder: api.SortDesc}})
	if err != nil {
		t.Fatal(err)
	}
	for _, sn := range page.Snapshots[1:] {
		if _, err := r.DeleteSnapshot(t.Context(), sn.ID); err != nil {
			t.Fatal(err)
		}
	}
	r.settled()
	id = r.resume(t, "a").Session.ID
	for i := range 3 * maxChain {
		if text := r.read(t, id, fmt.Sprint(i)); text != "x" {
			t.Errorf("file %d: %q", i, text)
		}
	}
	r.node.disks.age()
	if _, err := r.DeleteSandbox(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
	for r.node.disks.count() > 0 {
		time.Sleep(time.Millisecond)
	}
}

// A chain that became too long for a machine is merged before it is used.
func TestChainTooLong(t *testing.T) {
	r := newRig(t)
	r.c.mergeMu.Lock() // no merge in the background
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	for i := range driver.MaxLayers + 1 {
		if i == driver.MaxLayers {
			r.c.mergeMu.Unlock()
		}
		r.write(t, id, fmt.Sprint(i), "x")
		r.stop(t, id)
		id = r.resume(t, "a").Session.ID
	}
	for i := range driver.MaxLayers + 1 {
		if text := r.read(t, id, fmt.Sprint(i)); text != "x" {
			t.Errorf("file %d: %q", i, text)
		}
	}
}
