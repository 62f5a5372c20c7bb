package control

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
)

func decodeUpdate(t *testing.T, body string) (req api.UpdateSandboxRequest, err error) {
	t.Helper()
	err = api.Unmarshal([]byte(body), &req)
	return req, err
}

func TestUpdate(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	first := r.create(t, api.CreateSandboxRequest{Name: "a", Ports: []api.Int{api.IntOf(3000), api.IntOf(8080)}, Tags: map[string]string{"old": "x"},
		KeepLastSnapshots: &api.KeepLastSnapshots{Count: api.IntOf(2)}})
	update := func(body string) *api.SandboxAndRoutes {
		t.Helper()
		req, err := decodeUpdate(t, body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.UpdateSandbox(ctx, "a", req)
		if err != nil {
			t.Fatal(body, err)
		}
		return got
	}
	got := update(`{"ports":[8080,5000],"tags":{"new":"y"},"timeout":60000,"resources":{"vcpus":4,"memory":8192},"persistent":false,"networkPolicy":{"mode":"deny-all"}}`)
	sb := got.Sandbox
	if sb.Tags["new"] != "y" || len(sb.Tags) != 1 || sb.Timeout != 60_000 || sb.VCPUs != 4 || sb.Persistent || sb.NetworkPolicy.Mode != "deny-all" || sb.KeepLastSnapshots.Count != 2 {
		t.Errorf("%+v", sb)
	}
	if got.Routes[0] != first.Routes[1] || got.Routes[1].Port != 5000 {
		t.Errorf("routes %+v, were %+v", got.Routes, first.Routes)
	}
	s, err := r.GetSession(ctx, first.Session.ID)
	if err != nil || s.Session.VCPUs != 2 || s.Session.Timeout != 300_000 || s.Session.NetworkPolicy.Mode != "deny-all" {
		t.Errorf("%+v, %v", s, err)
	}
	if mode := r.node.last().policy.Mode(); mode != "deny-all" {
		t.Error("the machine's policy is", mode)
	}
	_, err = r.c.Route(ctx, first.Routes[0].Subdomain)
	wantCode(t, err, api.CodeNotFound)
	if route, err := r.c.Route(ctx, strings.ToUpper(got.Routes[1].Subdomain)); err != nil || route.Port != 5000 || route.State != RouteRunning {
		t.Errorf("%+v, %v", route, err)
	}
	if sb := update(`{}`).Sandbox; sb.Tags["new"] != "y" || sb.KeepLastSnapshots == nil {
		t.Errorf("%+v", sb)
	}
	if sb := update(`{"keepLastSnapshots":null,"tags":{},"ports":[]}`).Sandbox; len(sb.Tags) != 0 || sb.KeepLastSnapshots != nil {
		t.Errorf("%+v", sb)
	}
	for body, code := range map[string]api.Code{
		`{"timeout":-1}`:                    api.CodeTimeoutInvalid,
		`{"timeout":null}`:                  api.CodeBadRequest,
		`{"ports":[0]}`:                     api.CodeBadRequest,
		`{"resources":{"vcpus":5}}`:         api.CodeBadRequest,
		`{"networkPolicy":{"mode":"open"}}`: api.CodeBadRequest,
		`{"failoverRegions":["iad1"]}`:      api.CodeBadRequest,
		`{"tags":{"":""}}`:                  api.CodeBadRequest,
		`{"currentSnapshotId":"snap_x"}`:    api.CodeNotFound,
		`{"mounts":{"/a":{"drive":"d"}}}`:   api.CodeNotFound,
		`{"keepLastSnapshots":{"count":0}}`: api.CodeBadRequest,
		`{"snapshotExpiration":-5}`:         api.CodeBadRequest,
	} {
		req, err := decodeUpdate(t, body)
		if err == nil {
			_, err = r.UpdateSandbox(ctx, "a", req)
		}
		t.Run(body, func(t *testing.T) { wantCode(t, err, code) })
	}
	if mode := r.node.last().policy.Mode(); mode != "deny-all" {
		t.Error("a bad policy is in force:", mode)
	}
	_, err = r.UpdateSandbox(ctx, "none", api.UpdateSandboxRequest{})
	wantCode(t, err, api.CodeNotFound, "none")
	if _, err := r.StopSession(ctx, first.Session.ID); err != nil {
		t.Fatal(err)
	}
	if sb := update(`{"timeout":70000,"networkPolicy":"allow-all"}`).Sandbox; sb.Timeout != 70_000 || sb.Status != api.StatusStopped {
		t.Errorf("%+v", sb)
	}
}

func TestNetworkPolicyOfSession(t *testing.T) {
	r := newRig(t)
	got := r.create(t, api.CreateSandboxRequest{Name: "a"})
	id := got.Session.ID
	s, err := r.SetNetworkPolicy(t.Context(), id, api.NetworkPolicy{Allow: &api.AllowList{{Domain: "a.test"}}})
	if err != nil || s.NetworkPolicy.Mode != "custom" || s.NetworkPolicy.AllowedDomains[0] != "a.test" {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = r.SetNetworkPolicy(t.Context(), id, api.NetworkPolicy{Mode: "open"})
	wantCode(t, err, api.CodeBadRequest, "networkPolicy")
	if p := r.node.last().policy; p.Mode() != "custom" {
		t.Error(p)
	}
}

func TestRoutes(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	got := r.create(t, api.CreateSandboxRequest{Name: "a", Ports: []api.Int{api.IntOf(3000), api.IntOf(4000)}})
	route, err := r.c.Route(ctx, got.Routes[0].Subdomain)
	if err != nil || route.SandboxName != "a" || route.SessionID != got.Session.ID {
		t.Fatalf("%+v, %v", route, err)
	}
	conn, err := route.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); string(b) != "hello" || err != nil {
		t.Error(string(b), err)
	}
	conn.Close()
	deaf, _ := r.c.Route(ctx, got.Routes[1].Subdomain)
	if _, err := deaf.Dial(ctx); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	_, err = r.c.Route(ctx, "sb-none")
	wantCode(t, err, api.CodeNotFound)
	if _, err := r.StopSession(ctx, got.Session.ID); err != nil {
		t.Fatal(err)
	}
	if route, err := r.c.Route(ctx, got.Routes[1].Subdomain); err != nil || route.State != RouteStopped || route.Port != 4000 {
		t.Errorf("%+v, %v", route, err)
	}
}

func TestDelete(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	got := r.create(t, api.CreateSandboxRequest{Name: "a", Ports: []api.Int{api.IntOf(3000)}})
	cmd := r.run(t, got.Session.ID, "sleep", "x")
	l, err := r.CommandLogs(ctx, got.Session.ID, cmd.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := r.DeleteSandbox(ctx, "a", false)
	if err != nil || out.Sandbox.Status != api.StatusStopped {
		t.Fatalf("%+v, %v", out, err)
	}
	if text, _ := drain(t, l); text != "x" {
		t.Errorf("the reader that was there got %q", text)
	}
	r.nothing(t)
	_, err = r.DeleteSandbox(ctx, "a", false)
	wantCode(t, err, api.CodeNotFound)
	_, err = r.GetSession(ctx, got.Session.ID)
	wantCode(t, err, api.CodeNotFound)
	_, err = r.RunCommand(ctx, got.Session.ID, api.RunCommandRequest{Command: "true"}, "")
	wantCode(t, err, api.CodeNotFound)
	_, err = r.c.Route(ctx, got.Routes[0].Subdomain)
	wantCode(t, err, api.CodeNotFound)
	r.create(t, api.CreateSandboxRequest{Name: "a"})
}

func TestLists(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	for i := range 5 {
		r.create(t, api.CreateSandboxRequest{Name: fmt.Sprint("n", i)})
		r.clock.advance(1)
	}
	q := api.ListSandboxesQuery{Page: api.Page{Limit: 2, SortOrder: api.SortDesc}, SortBy: api.SortName}
	var names []string
	for {
		page, err := r.ListSandboxes(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		if page.Pagination.Count != len(page.Sandboxes) {
			t.Error(page.Pagination)
		}
		for _, sb := range page.Sandboxes {
			names = append(names, sb.Name)
			if sb.ExpiresAt == 0 || sb.Status != api.StatusRunning {
				t.Errorf("%+v", sb)
			}
		}
		if page.Pagination.Next == nil {
			break
		}
		q.Cursor = *page.Pagination.Next
	}
	if strings.Join(names, " ") != "n4 n3 n2 n1 n0" {
		t.Error(names)
	}
	q.Cursor = "nonsense"
	_, err := r.ListSandboxes(ctx, q)
	wantCode(t, err, api.CodeBadRequest, "cursor")
	page, err := r.ListSessions(ctx, api.ListSessionsQuery{Page: api.Page{Limit: 50, SortOrder: api.SortDesc}, Name: "n1"})
	if err != nil || len(page.Sessions) != 1 || page.Sessions[0].SandboxName != "n1" {
		t.Errorf("%+v, %v", page, err)
	}
	_, err = r.ListSessions(ctx, api.ListSessionsQuery{Page: api.Page{Limit: 50, SortOrder: api.SortDesc, Cursor: "x"}})
	wantCode(t, err, api.CodeBadRequest, "cursor")
}
