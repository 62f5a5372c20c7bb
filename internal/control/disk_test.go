package control

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
)

// Prune takes what nothing needs and leaves what does, beside running work; a
// dry run leaves all.
func TestPruneBesideWork(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	a := r.create(t, api.CreateSandboxRequest{Name: "a"})
	r.write(t, a.Session.ID, "x", "1")
	r.stop(t, a.Session.ID)
	a = r.resume(t, "a")
	r.output(t, r.run(t, a.Session.ID, "true"))
	unneeded := r.node.disks.add(fakeDisk{size: 5})
	r.node.disks.age()
	if err := os.MkdirAll(r.c.sessionDir("se_gone"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dryRun := range []bool{true, false} {
		got, err := r.c.Prune(ctx, dryRun)
		if err != nil || len(got) != 2 || got[0] != (api.Pruned{Kind: api.DiskLayers, Name: unneeded.Digest, Bytes: 5}) || got[1].Name != "se_gone" {
			t.Fatalf("dry run %v: %+v, %v", dryRun, got, err)
		}
		if _, err := os.Stat(filepath.Join(r.c.sessionDir("se_gone"))); (err == nil) != dryRun {
			t.Errorf("dry run %v: %v", dryRun, err)
		}
	}
	if n := r.node.disks.count(); n != 1 {
		t.Errorf("%d layers are left", n)
	}
	logs, scratch, err := r.c.LocalUse(ctx)
	if err != nil || logs.Count != 1 || scratch.Count != 1 {
		t.Errorf("%+v, %+v, %v", logs, scratch, err)
	}
	r.stop(t, a.Session.ID)
	if again := r.resume(t, "a"); r.read(t, again.Session.ID, "x") != "1" {
		t.Error("what was needed is gone")
	}
}
