package control

import (
	"testing"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/driver"
)

func (r *rig) drive(t *testing.T, name string) *api.Drive {
	t.Helper()
	d, _, err := r.CreateDrive(t.Context(), name, api.CreateDriveRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mount(drive, mode string) map[string]api.Mount {
	return map[string]api.Mount{"/vercel/sandbox/data": {Drive: drive, Mode: mode}}
}

func TestDriveIsMadeOnce(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	first, made, err := r.CreateDrive(ctx, "d", api.CreateDriveRequest{MaxSizeBytes: api.IntOf(5 << 20)})
	if err != nil || !made || first.MaxSizeBytes != 5<<20 || first.Region != api.DefaultRegion {
		t.Fatalf("%+v, made %v: %v", first, made, err)
	}
	second, made, err := r.CreateDrive(ctx, "d", api.CreateDriveRequest{})
	if err != nil || made || second.ID != first.ID {
		t.Errorf("again: %+v, made %v: %v", second, made, err)
	}
	_, _, err = r.CreateDrive(ctx, "d", api.CreateDriveRequest{MaxSizeBytes: api.IntOf(6 << 20)})
	wantCode(t, err, api.CodeConflict, "maxSizeBytes")
	_, _, err = r.CreateDrive(ctx, "d", api.CreateDriveRequest{Region: "elsewhere"})
	wantCode(t, err, api.CodeConflict, "region")
	_, _, err = r.CreateDrive(ctx, "e", api.CreateDriveRequest{MaxSizeBytes: api.IntOf(1)})
	wantCode(t, err, api.CodeBadRequest, "maxSizeBytes")
	if d, err := r.GetDrive(ctx, first.ID); err != nil || d.Name != "d" {
		t.Errorf("by id: %+v: %v", d, err)
	}
	other, err := r.c.Project(ctx, "other")
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.GetDrive(ctx, first.ID)
	wantCode(t, err, api.CodeNotFound)
	if page, err := other.ListDrives(ctx, api.ListDrivesQuery{Page: api.Page{Limit: 5, SortOrder: api.SortAsc}, SortBy: api.SortName}); err != nil || len(page.Drives) != 0 {
		t.Errorf("another project sees %v: %v", page, err)
	}
}

// What is written to a drive is kept, whatever becomes of its sandbox; it has
// one writer at a time.
func TestDriveOutlivesSandboxes(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.drive(t, "d")
	no := false
	a := r.create(t, api.CreateSandboxRequest{Name: "a", Mounts: mount("d", ""), Persistent: &no})
	if m := a.Sandbox.Mounts["/vercel/sandbox/data"]; m.Mode != api.MountReadWrite {
		t.Errorf("mounted as %+v", m)
	}
	if d, err := r.GetDrive(ctx, "d"); err != nil || d.CurrentSessionID != a.Session.ID || d.CurrentSandboxName != "a" {
		t.Errorf("%+v: %v", d, err)
	}
	r.write(t, a.Session.ID, "data/f", "one")
	r.write(t, a.Session.ID, "f", "lost")
	_, err := r.CreateSandbox(ctx, api.CreateSandboxRequest{Name: "b", Mounts: mount("d", "read-write")}, "")
	wantCode(t, err, api.CodeConflict, "d", "a", "snapshot")
	_, err = r.CreateSandbox(ctx, api.CreateSandboxRequest{Name: "b", Mounts: mount("d", "snapshot")}, "")
	wantCode(t, err, api.CodeDriveNotInitialized, "d")
	_, err = r.GetSandbox(ctx, "b", false)
	wantCode(t, err, api.CodeNotFound)
	_, err = r.DeleteDrive(ctx, "d")
	wantCode(t, err, api.CodeConflict, "a")
	if _, err := r.DeleteSandbox(ctx, "a", true); err != nil {
		t.Fatal(err)
	}
	b := r.create(t, api.CreateSandboxRequest{Name: "b", Mounts: mount("d", "read-write")})
	if got := r.read(t, b.Session.ID, "data/f"); got != "one" {
		t.Errorf("the drive holds %q", got)
	}
	r.write(t, b.Session.ID, "data/f", "two")
	reader := r.create(t, api.CreateSandboxRequest{Name: "reader", Mounts: mount("d", "read-only")})
	if got := r.read(t, reader.Session.ID, "data/f"); got != "one" {
		t.Errorf("the view holds %q", got)
	}
	// A copy sees what its source has written by now, and does not write.
	fork, err := r.ForkSandbox(ctx, "b", api.ForkSandboxRequest{Name: "fork"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.read(t, fork.Session.ID, "data/f"); got != "two" || fork.Sandbox.Mounts["/vercel/sandbox/data"].Mode != api.MountSnapshot {
		t.Errorf("the copy sees %q by %+v", got, fork.Sandbox.Mounts)
	}
	// It dies: what was kept last stays, and the drive is free.
	r.write(t, b.Session.ID, "data/f", "lost")
	writer := r.session(t, b.Session.ID)
	writer.machine.(*fakeMachine).die(driver.ErrKernel)
	<-writer.done
	again := r.resume(t, "b")
	if got := r.read(t, again.Session.ID, "data/f"); got != "two" {
		t.Errorf("after its writer died the drive holds %q", got)
	}
}

func (r *rig) session(t *testing.T, id string) *session {
	t.Helper()
	s := r.c.liveSession(r.name, id)
	if s == nil {
		t.Fatalf("session %s does not live", id)
	}
	return s
}

// A sandbox whose drive is gone, or written to by another, says so when it is
// resumed, and starts once its mounts are right.
func TestResumeWithoutItsDrive(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.drive(t, "d")
	a := r.create(t, api.CreateSandboxRequest{Name: "a", Mounts: mount("d", "")})
	r.write(t, a.Session.ID, "data/f", "one")
	r.stop(t, a.Session.ID)
	b := r.create(t, api.CreateSandboxRequest{Name: "b", Mounts: mount("d", "")})
	_, err := r.GetSandbox(ctx, "a", true)
	wantCode(t, err, api.CodeConflict, "d", "b")
	r.stop(t, b.Session.ID)
	if _, err := r.DeleteDrive(ctx, "d"); err != nil {
		t.Fatal(err)
	}
	_, err = r.GetSandbox(ctx, "a", true)
	wantCode(t, err, api.CodeConflict, "d", "mounts")
	_, err = r.UpdateSandbox(ctx, "a", api.UpdateSandboxRequest{Mounts: &map[string]api.Mount{"/x": {Drive: "none"}}})
	wantCode(t, err, api.CodeNotFound, "none")
	if _, err := r.UpdateSandbox(ctx, "a", api.UpdateSandboxRequest{Mounts: &map[string]api.Mount{}}); err != nil {
		t.Fatal(err)
	}
	r.resume(t, "a")
}

// The layers of a drive stay while it is there, are merged when they are too
// many, and go with it.
func TestDriveLayers(t *testing.T) {
	r := newRig(t)
	r.drive(t, "d")
	for i := range 9 {
		a := r.create(t, api.CreateSandboxRequest{Name: "a", Mounts: mount("d", "")})
		if i > 0 && r.read(t, a.Session.ID, "data/f") != string(rune('a'+i-1)) {
			t.Fatalf("generation %d is another", i)
		}
		r.write(t, a.Session.ID, "data/f", string(rune('a'+i)))
		if _, err := r.DeleteSandbox(t.Context(), "a", true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.DeleteDrive(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	r.c.wg.Wait()
	r.node.disks.age()
	r.c.prune()
	r.c.wg.Wait()
	if n := r.node.disks.count(); n != 0 {
		t.Errorf("%d layers are left of a drive that was deleted", n)
	}
}
