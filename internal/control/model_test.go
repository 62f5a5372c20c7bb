package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/driver"
)

// model is what a user may rely on: the files of each sandbox and snapshot.
type model struct {
	r         *rig
	t         *rapid.T
	n         int
	sandboxes map[string]*modelBox
	snapshots map[string]map[string]string // by id; those that can be started from
}

type modelBox struct {
	session string            // "" while it is stopped
	disk    map[string]string // of the session, or that the next one gets
	next    string            // snapshot that the next session starts from, whatever this one writes
	kept    string            // snapshot that it would start from now
}

func (m *model) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) box(running bool) (string, *modelBox) {
	var names []string
	for name, b := range m.sandboxes {
		if (b.session != "") == running {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		m.t.Skip()
	}
	name := rapid.SampledFrom(slices.Sorted(slices.Values(names))).Draw(m.t, "sandbox")
	return name, m.sandboxes[name]
}

func (m *model) add(out *api.SandboxAndSession, disk map[string]string, kept string) {
	m.sandboxes[out.Sandbox.Name] = &modelBox{session: out.Session.ID, disk: maps.Clone(disk), kept: kept}
}

func (m *model) create(*rapid.T) {
	m.n++
	out, err := m.r.CreateSandbox(context.Background(), api.CreateSandboxRequest{Name: fmt.Sprint("s", m.n)}, "")
	m.check(err)
	m.add(out, map[string]string{}, "")
}

func (m *model) snapshot() string {
	ids := slices.Sorted(maps.Keys(m.snapshots))
	if len(ids) == 0 {
		m.t.Skip()
	}
	return rapid.SampledFrom(ids).Draw(m.t, "snapshot")
}

func (m *model) createFrom(*rapid.T) {
	id := m.snapshot()
	m.n++
	out, err := m.r.CreateSandbox(context.Background(), api.CreateSandboxRequest{Name: fmt.Sprint("s", m.n), Source: fromSnapshot(id)}, "")
	m.check(err)
	m.add(out, m.snapshots[id], id)
}

func (m *model) write(*rapid.T) {
	_, b := m.box(true)
	file, text := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(m.t, "file"), rapid.StringMatching(`[a-z]{1,3}`).Draw(m.t, "text")
	live := m.r.c.liveSession("p", b.session).liveMachine().(*fakeMachine)
	live.mu.Lock()
	live.files["/"+file] = text
	live.mu.Unlock()
	b.disk["/"+file] = text
}

// ended is what the end of a session leaves, which kept snapshot id (or none).
func (m *model) ended(b *modelBox, id string) {
	b.session = ""
	if id != "" {
		m.snapshots[id] = maps.Clone(b.disk)
	}
	switch {
	case b.next != "":
		b.kept, b.next = b.next, ""
	case id != "":
		b.kept = id
	}
	b.disk = map[string]string{}
	if b.kept != "" {
		b.disk = maps.Clone(m.snapshots[b.kept])
	}
}

func (m *model) stop(*rapid.T) {
	_, b := m.box(true)
	out, err := m.r.StopSession(context.Background(), b.session)
	m.check(err)
	m.ended(b, out.Snapshot.ID)
}

func (m *model) take(*rapid.T) {
	_, b := m.box(true)
	out, err := m.r.CreateSnapshot(context.Background(), b.session, api.CreateSnapshotRequest{}, "")
	m.check(err)
	m.ended(b, out.Snapshot.ID)
}

func (m *model) timeUp(*rapid.T) {
	var ends []<-chan struct{}
	var boxes []*modelBox
	for _, b := range m.sandboxes {
		if b.session != "" {
			ends, boxes = append(ends, m.r.doneOf(b.session)), append(boxes, b)
		}
	}
	m.r.clock.advance(api.DefaultTimeout)
	for i, b := range boxes {
		<-ends[i]
		s, err := m.r.c.store.Session(context.Background(), "p", b.session)
		m.check(err)
		m.ended(b, s.KeptSnapshotID)
	}
}

func (m *model) die(*rapid.T) {
	_, b := m.box(true)
	s := m.r.c.liveSession("p", b.session)
	s.liveMachine().(*fakeMachine).die(driver.ErrKernel)
	<-s.done
	m.ended(b, "")
}

// saveFails: a stop that keeps nothing.
func (m *model) saveFails(*rapid.T) {
	name, b := m.box(true)
	m.r.c.liveSession("p", b.session).liveMachine().(*fakeMachine).onSave = func() error { return errors.New("disk full") }
	out, err := m.r.StopSession(context.Background(), b.session)
	m.check(err)
	if out.Session.Status != api.StatusFailed || out.Snapshot != nil {
		m.t.Fatalf("%+v", out)
	}
	m.ended(b, "")
	if b.kept == "" { // nothing to go on from
		if _, err := m.r.GetSandbox(context.Background(), name, true); err == nil {
			m.t.Fatal("resumed with an empty disk")
		}
		_, err := m.r.DeleteSandbox(context.Background(), name, false)
		m.check(err)
		delete(m.sandboxes, name)
	}
}

func (m *model) resume(*rapid.T) {
	name, b := m.box(false)
	out, err := m.r.GetSandbox(context.Background(), name, true)
	if b.kept != "" && m.snapshots[b.kept] == nil { // it was deleted
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeSnapshotNotFound {
			m.t.Fatalf("%+v, %v", out, err)
		}
		_, err := m.r.DeleteSandbox(context.Background(), name, false)
		m.check(err)
		delete(m.sandboxes, name)
		return
	}
	m.check(err)
	b.session, b.next = out.Session.ID, ""
}

func (m *model) fork(*rapid.T) {
	name, b := m.box(rapid.Bool().Draw(m.t, "running"))
	if b.session == "" && b.kept != "" && m.snapshots[b.kept] == nil {
		m.t.Skip()
	}
	m.n++
	out, err := m.r.ForkSandbox(context.Background(), name, api.ForkSandboxRequest{Name: fmt.Sprint("s", m.n)}, "")
	m.check(err)
	kept := out.Sandbox.CurrentSnapshotID
	m.add(out, b.disk, kept)
	if kept != "" {
		m.snapshots[kept] = maps.Clone(b.disk)
	}
}

func (m *model) rollBack(*rapid.T) {
	name, b := m.box(rapid.Bool().Draw(m.t, "running"))
	id := m.snapshot()
	_, err := m.r.UpdateSandbox(context.Background(), name, api.UpdateSandboxRequest{CurrentSnapshotID: id})
	m.check(err)
	b.kept = id
	if b.session != "" {
		b.next = id
	} else {
		b.disk = maps.Clone(m.snapshots[id])
	}
}

func (m *model) deleteSnapshot(*rapid.T) {
	id := m.snapshot()
	_, err := m.r.DeleteSnapshot(context.Background(), id)
	m.check(err)
	delete(m.snapshots, id)
	m.r.node.disks.age()
}

func (m *model) deleteSandbox(*rapid.T) {
	name, _ := m.box(rapid.Bool().Draw(m.t, "running"))
	_, err := m.r.DeleteSandbox(context.Background(), name, false)
	m.check(err)
	delete(m.sandboxes, name)
}

// settle lets merges and removals happen between the steps, or not.
func (m *model) settle(*rapid.T) {
	m.r.settled()
	m.r.clock.advance(time.Second)
}

// same compares what runs with the model.
func (m *model) same(*rapid.T) {
	for name, b := range m.sandboxes {
		got, err := m.r.GetSandbox(context.Background(), name, false)
		m.check(err)
		if (b.session != "") != (got.Sandbox.Status == api.StatusRunning) || got.Sandbox.CurrentSnapshotID != b.kept {
			m.t.Fatalf("%s: %+v, want %+v", name, got.Sandbox, b)
		}
		if b.session == "" {
			continue
		}
		live := m.r.c.liveSession("p", b.session).liveMachine().(*fakeMachine)
		live.mu.Lock()
		files := maps.Clone(live.files)
		live.mu.Unlock()
		if !maps.Equal(files, b.disk) {
			m.t.Fatalf("%s has %v, want %v", name, files, b.disk)
		}
	}
}

// TestModel: whatever happens in whatever order, every sandbox has the files
// that it must have.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{r: newRig(t), t: rt, sandboxes: map[string]*modelBox{}, snapshots: map[string]map[string]string{}}
		defer func() {
			if err := m.r.c.Close(context.Background()); err != nil {
				rt.Error(err)
			}
		}()
		rt.Repeat(map[string]func(*rapid.T){
			"create": m.create, "create from": m.createFrom, "write": m.write, "write more": m.write, "stop": m.stop, "snapshot": m.take,
			"time up": m.timeUp, "die": m.die, "save fails": m.saveFails, "resume": m.resume, "resume more": m.resume, "fork": m.fork,
			"roll back": m.rollBack, "delete snapshot": m.deleteSnapshot, "delete sandbox": m.deleteSandbox, "settle": m.settle, "": m.same,
		})
	})
}
