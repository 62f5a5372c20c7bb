package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/driver"
)

func TestStop(t *testing.T) {
	r := newRig(t)
	sb := r.create(t, api.CreateSandboxRequest{Name: "a", Ports: []api.Int{api.IntOf(3000)}})
	id := sb.Session.ID
	cmd := r.run(t, id, "sleep", "kept")
	r.clock.advance(5 * time.Second)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			got, err := r.StopSession(t.Context(), id)
			if err != nil {
				t.Error(err)
				return
			}
			s := got.Session
			if s.Status != api.StatusStopped || s.StoppedAt == 0 || s.RequestedStopAt == 0 || *s.Duration != 5000 ||
				*s.ActiveCPUDurationMs != 70 || *s.NetworkTransfer != (api.NetworkTransfer{Ingress: 11, Egress: 22}) || s.Reason != "" {
				t.Errorf("session %+v", s)
			}
			b := got.Sandbox
			if b == nil || b.Status != api.StatusStopped || b.ExpiresAt != 0 || b.TotalDurationMs != 5000 || b.TotalEgressBytes != 22 || b.TotalActiveCPUDurationMs != 70 {
				t.Errorf("sandbox %+v", b)
			}
		})
	}
	wg.Wait()
	if n := r.node.running(); n != 0 {
		t.Errorf("%d machines", n)
	}
	if out, _, code := r.output(t, cmd); out != "kept" || code != 137 {
		t.Errorf("%q, %d", out, code)
	}
	got, err := r.GetSession(t.Context(), id)
	if err != nil || got.Session.Status != api.StatusStopped || len(got.Routes) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if c, err := r.KillCommand(t.Context(), id, cmd.ID, api.Int{}); err != nil || *c.ExitCode != 137 {
		t.Errorf("kill: %+v, %v", c, err)
	}
}

// uses are all calls that need a running session.
func (r *rig) uses(id string) map[string]func() error {
	ctx := context.Background()
	return map[string]func() error{
		"cmd": func() error {
			_, err := r.RunCommand(ctx, id, api.RunCommandRequest{Command: "true"}, "")
			return err
		},
		"write":  func() error { return r.WriteFiles(ctx, id, "/", strings.NewReader("")) },
		"read":   func() error { _, _, err := r.ReadFile(ctx, id, "x", ""); return err },
		"mkdir":  func() error { return r.Mkdir(ctx, id, "x", "") },
		"extend": func() error { _, err := r.ExtendTimeout(ctx, id, api.IntOf(1000)); return err },
		"policy": func() error {
			_, err := r.SetNetworkPolicy(ctx, id, api.NetworkPolicy{Mode: "deny-all"})
			return err
		},
		"snapshot": func() error {
			_, err := r.CreateSnapshot(ctx, id, api.CreateSnapshotRequest{}, "")
			return err
		},
		"interactive": func() error { _, err := r.NewInteractive(ctx, id); return err },
		"terminal":    func() error { _, err := r.OpenTerminal(ctx, id, api.TerminalStart{}); return err },
	}
}

func TestStoppedAndStopping(t *testing.T) {
	r := newRig(t)
	stopping, delay := make(chan struct{}), make(chan struct{})
	r.node.onStart = func(_ context.Context, m *fakeMachine) error {
		m.onStop = func(context.Context) { close(stopping); <-delay }
		return nil
	}
	no := false
	id := r.create(t, api.CreateSandboxRequest{Name: "a", Persistent: &no}).Session.ID
	stopped := make(chan error)
	go func() { _, err := r.StopSession(context.Background(), id); stopped <- err }()
	<-stopping
	for name, use := range r.uses(id) {
		t.Run("stopping "+name, func(t *testing.T) { wantCode(t, use(), api.CodeSandboxStopping) })
	}
	resumed := make(chan error)
	go func() { _, err := r.GetSandbox(context.Background(), "a", true); resumed <- err }()
	if got, err := r.GetSandbox(t.Context(), "a", false); err != nil || got.Sandbox.Status != api.StatusStopping || got.Session.Status != api.StatusStopping {
		t.Errorf("%+v, %v", got, err)
	}
	r.node.onStart = nil
	close(delay)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	wantCode(t, <-resumed, api.CodeSandboxStopped, "not persistent", "create a new")
	for name, use := range r.uses(id) {
		t.Run("stopped "+name, func(t *testing.T) { wantCode(t, use(), api.CodeSandboxStopped) })
	}
	for name, use := range r.uses("se_none") {
		t.Run("unknown "+name, func(t *testing.T) { wantCode(t, use(), api.CodeNotFound, "se_none") })
	}
	r.create(t, api.CreateSandboxRequest{Name: "b"})
	got, err := r.GetSandbox(t.Context(), "b", true)
	if err != nil || got.Resumed {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTimeout(t *testing.T) {
	r := newRig(t)
	got := r.create(t, api.CreateSandboxRequest{Timeout: api.IntOf(10_000)})
	id := got.Session.ID
	wait := r.run(t, id, "sleep", "x")
	r.clock.advance(9 * time.Second)
	s, err := r.ExtendTimeout(t.Context(), id, api.IntOf(5000))
	if err != nil || s.Timeout != 15_000 {
		t.Fatalf("%+v, %v", s, err)
	}
	sb, _ := r.GetSandbox(t.Context(), got.Sandbox.Name, false)
	if sb.Sandbox.ExpiresAt != s.StartedAt+15_000 {
		t.Error("expires", sb.Sandbox.ExpiresAt)
	}
	if sb.Sandbox.Timeout != 10_000 {
		t.Error("the sandbox's own time-out changed")
	}
	r.clock.advance(5999 * time.Millisecond)
	if s, _ := r.GetSession(t.Context(), id); s.Session.Status != api.StatusRunning {
		t.Error("ended early:", s.Session.Status)
	}
	for _, d := range []api.Int{{}, api.IntOf(0), api.IntOf(-5000), api.IntOf(999), api.IntOf(86_400_000), api.IntOf(1 << 53)} {
		_, err := r.ExtendTimeout(t.Context(), id, d)
		wantCode(t, err, api.CodeTimeoutInvalid, "duration")
	}
	r.clock.advance(time.Millisecond)
	if _, _, code := r.output(t, wait); code != 137 {
		t.Error(code)
	}
	<-r.doneOf(id)
	end, err := r.GetSession(t.Context(), id)
	if err != nil || end.Session.Status != api.StatusStopped || *end.Session.Duration != 15_000 || end.Session.Reason == "" {
		t.Errorf("%+v, %v", end, err)
	}
	if n := r.node.running(); n != 0 {
		t.Errorf("%d machines", n)
	}
}

// doneOf is closed when the session is over.
func (r *rig) doneOf(id string) <-chan struct{} {
	if s := r.c.liveSession("p", id); s != nil {
		return s.done
	}
	ch := make(chan struct{})
	close(ch)
	return ch
}

func TestOutOfMemory(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{Name: "a", Resources: &api.Resources{VCPUs: api.IntOf(1)}}).Session.ID
	witness := r.create(t, api.CreateSandboxRequest{}).Session.ID
	cmd := r.run(t, id, "sleep", "before")
	l, err := r.CommandLogs(t.Context(), id, cmd.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, data, err := l.Next(t.Context()); data != "before" || err != nil {
		t.Fatal(data, err)
	}
	r.node.machines[id].die(fmt.Errorf("machine: %w", driver.ErrOutOfMemory))
	if _, errs := drain(t, l); !strings.Contains(errs, "out of memory") {
		t.Errorf("stderr %q", errs)
	}
	if out, errs, code := r.output(t, cmd); out != "before" || code != 137 || !strings.Contains(errs, "2048 MB") {
		t.Errorf("%q, %q, %d", out, errs, code)
	}
	<-r.doneOf(id)
	got, err := r.GetSandbox(t.Context(), "a", false)
	if err != nil || got.Session.Status != api.StatusFailed || got.Sandbox.Status != api.StatusFailed || !strings.Contains(got.Session.Reason, "out of memory") {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = r.RunCommand(t.Context(), id, api.RunCommandRequest{Command: "true"}, "")
	wantCode(t, err, api.CodeSandboxStopped, "out of memory")
	next, err := r.GetSandbox(t.Context(), "a", true)
	if err != nil || !next.Resumed || !strings.Contains(next.Session.Notice, "out of memory") {
		t.Errorf("%+v, %v", next, err)
	}
	if _, _, code := r.output(t, r.run(t, witness, "true")); code != 0 {
		t.Error("the other sandbox is hit too")
	}
}

// A machine that dies while calls are under way: each of them ends, and none
// with an error of the server's own.
func TestDeathDuringCalls(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	var wg sync.WaitGroup
	for range 10 {
		for name, use := range r.uses(id) {
			wg.Go(func() {
				for {
					err := use()
					if e, ok := errors.AsType[*api.Error](err); ok && (e.Code == api.CodeSandboxStopped || e.Code == api.CodeSandboxStopping) {
						return
					} else if err != nil && !ok {
						t.Errorf("%s: %v", name, err)
						return
					}
				}
			})
		}
	}
	r.node.last().die(driver.ErrKernel)
	wg.Wait()
	<-r.doneOf(id)
	if s, _ := r.GetSession(t.Context(), id); s.Session.Status != api.StatusFailed || s.Session.Reason == "" {
		t.Errorf("%+v", s.Session)
	}
	list, err := r.ListCommands(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if c.ExitCode == nil {
			t.Error("a command runs for ever")
		}
	}
}

func TestProjectsAreWorldsOfTheirOwn(t *testing.T) {
	r := newRig(t)
	sb := r.create(t, api.CreateSandboxRequest{Name: "a"})
	cmd := r.run(t, sb.Session.ID, "true")
	r.output(t, cmd)
	other, err := r.c.Project(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	o := &rig{Project: other, c: r.c}
	ctx := t.Context()
	calls := func(id, name, command string) map[string]func() error {
		m := o.uses(id)
		m["get session"] = func() error { _, err := o.GetSession(ctx, id); return err }
		m["stop"] = func() error { _, err := o.StopSession(ctx, id); return err }
		m["commands"] = func() error { _, err := o.ListCommands(ctx, id); return err }
		m["get command"] = func() error { _, err := o.GetCommand(ctx, id, command); return err }
		m["logs"] = func() error { _, err := o.CommandLogs(ctx, id, command); return err }
		m["kill"] = func() error { _, err := o.KillCommand(ctx, id, command, api.Int{}); return err }
		m["stdin"] = func() error { return o.WriteStdin(ctx, id, command, strings.NewReader("")) }
		m["get"] = func() error { _, err := o.GetSandbox(ctx, name, true); return err }
		m["update"] = func() error { _, err := o.UpdateSandbox(ctx, name, api.UpdateSandboxRequest{}); return err }
		m["delete"] = func() error { _, err := o.DeleteSandbox(ctx, name, true); return err }
		return m
	}
	unknown := calls("se_unknown", "unknown", "cmd_unknown")
	for name, call := range calls(sb.Session.ID, "a", cmd.ID) {
		theirs, none := call(), unknown[name]()
		wantCode(t, theirs, api.CodeNotFound)
		if a := strings.ReplaceAll(strings.ReplaceAll(theirs.Error(), sb.Session.ID, "X"), `"a"`, `"X"`); a != strings.ReplaceAll(strings.ReplaceAll(none.Error(), "se_unknown", "X"), `"unknown"`, `"X"`) {
			t.Errorf("%s: %q and %q", name, theirs, none)
		}
	}
	page, err := o.ListSandboxes(ctx, api.ListSandboxesQuery{Page: api.Page{Limit: 5, SortOrder: api.SortAsc}, SortBy: api.SortName})
	if err != nil || len(page.Sandboxes) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
	if s, _ := r.GetSession(ctx, sb.Session.ID); s.Session.Status != api.StatusRunning {
		t.Error("touched")
	}
	if p, err := r.c.ProjectOf(ctx, sb.Session.ID); p != "p" || err != nil {
		t.Error(p, err)
	}
}

func TestTokens(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	if id, err := r.c.Authenticate(ctx, "root"); err != nil || id.Project != "" {
		t.Error(id, err)
	}
	token, err := r.c.CreateToken(ctx, "q")
	if err != nil {
		t.Fatal(err)
	}
	if id, err := r.c.Authenticate(ctx, token); err != nil || id.Project != "q" {
		t.Error(id, err)
	}
	for _, bad := range []string{"", "roo", token + "x"} {
		_, err := r.c.Authenticate(ctx, bad)
		wantCode(t, err, api.CodeUnauthorized)
	}
	_, err = r.c.CreateToken(ctx, "a b")
	wantCode(t, err, api.CodeBadRequest, "project")
}

func TestCloseStopsEverything(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session.ID
	cmd := r.run(t, id, "sleep", "x")
	l, err := r.CommandLogs(t.Context(), id, cmd.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := r.c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, _ := drain(t, l); out != "x" {
		t.Error(out)
	}
	_, err = r.CreateSandbox(t.Context(), api.CreateSandboxRequest{}, "")
	wantCode(t, err, api.CodeUnavailable)
	again := rigAt(t, r.dir, api.DefaultLimits())
	if c, err := again.GetCommand(t.Context(), id, cmd.ID); err != nil || *c.ExitCode != 137 {
		t.Errorf("%+v, %v", c, err)
	}
	s, err := again.GetSession(t.Context(), id)
	if err != nil || s.Session.Status != api.StatusStopped || s.Session.Reason == "" {
		t.Errorf("%+v, %v", s, err)
	}
}
