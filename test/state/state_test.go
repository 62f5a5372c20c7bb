//go:build linux && !race

package state

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
	"github.com/glovebox-dev/glovebox/test/testserver"
)

//go:embed tree.py
var treeProgram string

// For hours: GLOVEBOX_STATE_TIME=3h go test ./test/state -timeout 4h.
var (
	timeVar  = "GLOVEBOX_STATE_TIME"
	timeOnce = 30 * time.Second
)

// disk and drive are where the work is done, in a sandbox's own disk and in a
// drive.
const (
	disk  = "/srv/w"
	drive = "/data"
)

// stepDeadline bounds one call, whatever else the host does.
const stepDeadline = 2 * time.Minute

// trees are the listings of the two.
type trees struct{ disk, drive string }

// world is a sandbox with what it must hold.
type world struct {
	t         *testing.T
	server    *testserver.Server
	client    *client.Client
	name      string
	sandbox   *client.Sandbox
	now, kept trees
	snapshots map[string]string // listings of the disk, by snapshot
	steps     int
}

// op is one piece of work; see tree.py.
type op struct {
	Op, Path, Other string
	N, Seed         int64
}

var opNames = []string{"write", "write", "append", "middle", "sparse", "truncate", "mkdir", "mkdir", "remove", "swap", "rename", "rename",
	"link", "symlink", "chmod", "chown", "xattr", "unxattr", "utime", "fifo", "device"}

// place is one of a few paths, so that work meets earlier work.
var place = rapid.Custom(func(t *rapid.T) string {
	p := rapid.SampledFrom([]string{disk, disk, drive}).Draw(t, "tree")
	for range rapid.IntRange(1, 3).Draw(t, "depth") {
		p += "/" + rapid.SampledFrom([]string{"a", "b", "c", "é \n", "long-" + strings.Repeat("n", 200)}).Draw(t, "name")
	}
	return p
})

var work = rapid.Custom(func(t *rapid.T) op {
	o := op{Op: rapid.SampledFrom(opNames).Draw(t, "op"), Path: place.Draw(t, "path"), Other: place.Draw(t, "other"),
		N: rapid.SampledFrom([]int64{0, 1, 5, 100, 4095, 4096, 4097, 70_000, 300_000}).Draw(t, "n"), Seed: rapid.Int64Range(1, 1<<40).Draw(t, "seed")}
	if o.Op != "symlink" && strings.HasPrefix(o.Path, disk) != strings.HasPrefix(o.Other, disk) {
		o.Other = o.Path + "2" // names of one file system
	}
	return o
})

// TestStateAgainstModel: whatever is done to files, and however sessions and
// servers end, what was kept comes back exactly.
func TestStateAgainstModel(t *testing.T) {
	limit := timeOnce
	if s := os.Getenv(timeVar); s != "" {
		var err error
		if limit, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", timeVar, err)
		}
	}
	// One check after the other until the time is over: each failure is told
	// with what leads to it again.
	for name, value := range map[string]string{"rapid.checks": "1", "rapid.steps": "15", "rapid.shrinktime": "1m", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	server := testserver.Start(t)
	c, err := client.New(server.URL, server.Token)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	steps := 0
	for start := time.Now(); time.Since(start) < limit && !t.Failed(); {
		rapid.Check(t, func(rt *rapid.T) {
			w := &world{t: t, server: server, client: c, snapshots: map[string]string{}}
			defer w.remove()
			w.begin(rt)
			rt.Repeat(map[string]func(*rapid.T){
				"work": w.work, "work again": w.work, "work once more": w.work,
				"stop": w.stop, "snapshot": w.snapshot, "create": w.createFrom, "fork": w.fork, "roll back": w.rollBack,
				"kill": w.kill, "kill all": w.killAll,
			})
			w.stop(rt)
			steps += w.steps
		})
	}
	t.Logf("%d steps", steps)
}

// call runs f with a deadline.
func call(rt *rapid.T, what string, f func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), stepDeadline)
	defer cancel()
	if err := f(ctx); err != nil {
		rt.Fatalf("%s: %v", what, err)
	}
}

// tree does work in a sandbox and lists what is there then.
func tree(rt *rapid.T, s *client.Sandbox, ops ...op) (out trees) {
	told, err := json.Marshal(append([]op{}, ops...))
	if err != nil {
		rt.Fatal(err)
	}
	var stdout, stderr strings.Builder
	call(rt, "work", func(ctx context.Context) error {
		cmd, err := s.RunCommand(ctx, client.Cmd{Name: "python3", Args: []string{"-c", treeProgram, string(told), disk, drive}, Sudo: true, Stdout: &stdout, Stderr: &stderr})
		if err == nil && cmd.ExitCode() != 0 {
			err = fmt.Errorf("exit code %d: %s", cmd.ExitCode(), stderr.String())
		}
		return err
	})
	parts := strings.Split(stdout.String(), "--\n")
	if len(parts) != 3 {
		rt.Fatalf("a listing of %d parts:\n%s", len(parts), stdout.String())
	}
	return trees{parts[0], parts[1]}
}

func (w *world) begin(rt *rapid.T) {
	w.name = api.NewName()
	yes := true
	call(rt, "create", func(ctx context.Context) (err error) {
		w.server.Call(w.t, "POST", "/v2/sandboxes/drives/"+w.name, nil, nil)
		w.sandbox, err = w.client.CreateSandbox(ctx, api.CreateSandboxRequest{Name: w.name, Persistent: &yes, Mounts: map[string]api.Mount{drive: {Drive: w.name}}})
		return err
	})
	w.now = tree(rt, w.sandbox, op{Op: "mkdir", Path: disk})
	w.stop(rt)
}

// same compares what a sandbox holds with what it must hold.
func same(rt *rapid.T, what string, s *client.Sandbox, want trees) {
	got := tree(rt, s)
	for _, d := range []string{cmp.Diff(strings.Split(want.disk, "\n"), strings.Split(got.disk, "\n")), cmp.Diff(strings.Split(want.drive, "\n"), strings.Split(got.drive, "\n"))} {
		if d != "" {
			rt.Fatalf("%s: another tree (-want +got):\n%s", what, d)
		}
	}
}

func (w *world) resume(rt *rapid.T, what string) {
	call(rt, "resume", func(ctx context.Context) (err error) {
		w.sandbox, err = w.client.ResumeSandbox(ctx, w.name)
		return err
	})
	same(rt, what, w.sandbox, w.now)
	w.steps++
}

func (w *world) work(rt *rapid.T) {
	w.now = tree(rt, w.sandbox, rapid.SliceOfN(work, 1, 12).Draw(rt, "work")...)
	w.steps++
}

func (w *world) stop(rt *rapid.T) {
	call(rt, "stop", func(ctx context.Context) error {
		got, err := w.sandbox.Stop(ctx)
		if err == nil && got.Session.Status != api.StatusStopped {
			err = fmt.Errorf("it is %s: %s", got.Session.Status, got.Session.Reason)
		}
		return err
	})
	w.kept = w.now
	w.resume(rt, "stopped and resumed")
}

func (w *world) snapshot(rt *rapid.T) {
	call(rt, "snapshot", func(ctx context.Context) error {
		sn, err := w.sandbox.Snapshot(ctx, client.SnapshotOptions{})
		w.snapshots[sn.ID] = w.now.disk
		return err
	})
	w.kept = w.now
	w.resume(rt, "resumed after a snapshot")
}

// any is one of the snapshots.
func (w *world) any(rt *rapid.T) string {
	if len(w.snapshots) == 0 {
		rt.Skip("there is no snapshot")
	}
	ids := []string{}
	for id := range w.snapshots {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int { return strings.Compare(w.snapshots[a]+a, w.snapshots[b]+b) })
	return rapid.SampledFrom(ids).Draw(rt, "snapshot")
}

func (w *world) createFrom(rt *rapid.T) {
	id, no := w.any(rt), false
	w.elsewhere(rt, "created from a snapshot", trees{w.snapshots[id], w.kept.drive}, func(ctx context.Context) (*client.Sandbox, error) {
		return w.client.CreateSandbox(ctx, api.CreateSandboxRequest{Persistent: &no, Source: &api.Source{Type: api.SourceSnapshot, SnapshotID: id},
			Mounts: map[string]api.Mount{drive: {Drive: w.name, Mode: api.MountSnapshot}}})
	})
}

func (w *world) fork(rt *rapid.T) {
	no := false
	w.elsewhere(rt, "forked", w.now, func(ctx context.Context) (*client.Sandbox, error) {
		return w.client.ForkSandbox(ctx, w.name, api.ForkSandboxRequest{Persistent: &no})
	})
	w.kept.drive = w.now.drive
	same(rt, "after a fork", w.sandbox, w.now)
}

// elsewhere looks at another sandbox, and removes it.
func (w *world) elsewhere(rt *rapid.T, what string, want trees, make func(context.Context) (*client.Sandbox, error)) {
	var other *client.Sandbox
	call(rt, what, func(ctx context.Context) (err error) { other, err = make(ctx); return err })
	defer call(rt, "delete", func(ctx context.Context) error { return other.Delete(ctx) })
	same(rt, what, other, want)
	w.steps++
}

func (w *world) rollBack(rt *rapid.T) {
	id := w.any(rt)
	call(rt, "roll back", func(ctx context.Context) error {
		if _, err := w.sandbox.Stop(ctx); err != nil {
			return err
		}
		return w.sandbox.Update(ctx, api.UpdateSandboxRequest{CurrentSnapshotID: id})
	})
	w.now.disk = w.snapshots[id]
	w.kept = w.now
	w.resume(rt, "rolled back")
}

// kill ends the server; the next one takes the sandbox over.
func (w *world) kill(rt *rapid.T) {
	w.server.KillAndRestart(w.t)
	same(rt, "taken over", w.sandbox, w.now)
	w.steps++
}

// killAll ends the sandbox with the server: what was kept last comes back.
func (w *world) killAll(rt *rapid.T) {
	w.server.KillAllAndRestart(w.t)
	w.now = w.kept
	w.resume(rt, "resumed after all was killed")
}

func (w *world) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), stepDeadline)
	defer cancel()
	if err := w.client.DeleteSandbox(ctx, w.name, true); err != nil {
		w.t.Logf("delete: %v", err)
	}
	w.server.Send(w.t, "DELETE", "/v2/sandboxes/drives/"+w.name, nil).Body.Close()
}
