package control

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

// TestStartCommand: every session begins with it, also that of a fork.
func TestStartCommand(t *testing.T) {
	r := newRig(t)
	start := &api.StartCommand{Command: "sleep", Args: []string{"serving"}, Env: map[string]string{"KEY": "s3cret"}}
	sb := r.create(t, api.CreateSandboxRequest{Name: "a", StartCommand: start})
	if got := sb.Sandbox.StartCommand; got == nil || got.Command != "sleep" || got.Env != nil {
		t.Errorf("shown as %+v", got)
	}
	running := func(session string) {
		t.Helper()
		list, err := r.ListCommands(t.Context(), session)
		for len(list) == 0 && err == nil && t.Context().Err() == nil { // a resume does not wait for it
			time.Sleep(time.Millisecond)
			list, err = r.ListCommands(t.Context(), session)
		}
		if err != nil || len(list) != 1 || list[0].Name != "sleep" || list[0].ExitCode != nil {
			t.Errorf("commands %+v, %v", list, err)
		}
	}
	running(sb.Session.ID)
	r.stop(t, sb.Session.ID)
	running(r.resume(t, "a").Session.ID)
	fork, err := r.ForkSandbox(t.Context(), "a", api.ForkSandboxRequest{Name: "b"}, "")
	if err != nil {
		t.Fatal(err)
	}
	running(fork.Session.ID)
	none := api.UpdateSandboxRequest{StartCommand: api.Nullable[api.StartCommand]{Set: true, Null: true}}
	if _, err := r.UpdateSandbox(t.Context(), "b", none); err != nil {
		t.Fatal(err)
	}
	r.stop(t, fork.Session.ID)
	if list, err := r.ListCommands(t.Context(), r.resume(t, "b").Session.ID); err != nil || len(list) != 0 {
		t.Errorf("without one: %+v, %v", list, err)
	}
}

// TestStartCommandFails: the session says so and goes on.
func TestStartCommandFails(t *testing.T) {
	r := newRig(t)
	sb := r.create(t, api.CreateSandboxRequest{StartCommand: &api.StartCommand{Command: "true", Cwd: "/none"}})
	if sb.Session.Status != api.StatusRunning || !strings.Contains(sb.Session.Notice, "/none") {
		t.Errorf("%+v", sb.Session)
	}
	_, err := r.CreateSandbox(t.Context(), api.CreateSandboxRequest{StartCommand: &api.StartCommand{}}, "")
	wantCode(t, err, api.CodeBadRequest, "__startCommand")
}

// TestWake: the preview of a stopped sandbox starts it where it wants that,
// and asks for the token before.
func TestWake(t *testing.T) {
	r := newRig(t)
	token := "a-token-of-a-preview"
	sb := r.create(t, api.CreateSandboxRequest{Name: "a", Ports: []api.Int{api.IntOf(80)}, WakeOnRequest: true, PreviewToken: token})
	sub := sb.Routes[0].Subdomain
	r.stop(t, sb.Session.ID)
	route, err := r.c.Route(t.Context(), sub)
	if err != nil || route.State != RouteStopped || route.Wake == nil || route.Admits == nil || route.Admits("wrong") || !route.Admits(token) {
		t.Fatalf("%+v, %v", route, err)
	}
	if route, err = route.Wake(t.Context()); err != nil || route.State != RouteRunning || route.SessionID == sb.Session.ID || route.Admits == nil {
		t.Fatalf("%+v, %v", route, err)
	}
	no := false
	if _, err := r.UpdateSandbox(t.Context(), "a", api.UpdateSandboxRequest{WakeOnRequest: &no}); err != nil {
		t.Fatal(err)
	}
	r.stop(t, route.SessionID)
	if route, err = r.c.Route(t.Context(), sub); err != nil || route.Wake != nil {
		t.Errorf("%+v, %v", route, err)
	}
	_, err = r.CreateSandbox(t.Context(), api.CreateSandboxRequest{Persistent: &no, WakeOnRequest: true}, "")
	wantCode(t, err, api.CodeBadRequest, "persistent")
}

// TestWakeWaits: with a start command it is answered when something listens.
func TestWakeWaits(t *testing.T) {
	r := newRig(t)
	sb := r.create(t, api.CreateSandboxRequest{Ports: []api.Int{api.IntOf(80)}, WakeOnRequest: true,
		StartCommand: &api.StartCommand{Command: "sleep"}})
	r.stop(t, sb.Session.ID)
	route, err := r.c.Route(t.Context(), sb.Routes[0].Subdomain)
	if err != nil || route.Wake == nil {
		t.Fatalf("%+v, %v", route, err)
	}
	var asked atomic.Int64
	r.node.listens = func(port int) bool { return asked.Add(1) == 3 }
	woken := make(chan error, 1)
	go func() {
		_, err := route.Wake(t.Context())
		woken <- err
	}()
	for { // it polls while nothing listens
		select {
		case err := <-woken:
			if err != nil || asked.Load() != 3 {
				t.Errorf("asked %d times, %v", asked.Load(), err)
			}
			return
		case <-time.After(time.Millisecond):
			r.clock.advance(wakePoll)
		}
	}
}
