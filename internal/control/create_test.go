package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/node"
)

func TestCreateDefaults(t *testing.T) {
	r := newRig(t)
	got := r.create(t, api.CreateSandboxRequest{Name: "a"})
	now := r.clock.Now().UnixMilli()
	want := &api.SandboxAndSession{
		Sandbox: api.Sandbox{
			Name: "a", Persistent: true, Region: "iad1", VCPUs: 2, Memory: 4096, Image: "glovebox/universal@sha256:abc",
			Timeout: 300_000, NetworkPolicy: &api.NetworkPolicyView{Mode: "allow-all"}, CreatedAt: now, UpdatedAt: now,
			ExpiresAt: now + 300_000, CurrentSessionID: got.Session.ID, Status: api.StatusRunning, StatusUpdatedAt: now, Cwd: "/vercel/sandbox",
		},
		Session: api.Session{
			ID: got.Session.ID, SandboxName: "a", Memory: 4096, VCPUs: 2, Region: "iad1", Timeout: 300_000, Status: api.StatusRunning,
			RequestedAt: now, StartedAt: now, CreatedAt: now, UpdatedAt: now, Cwd: "/vercel/sandbox", NetworkPolicy: &api.NetworkPolicyView{Mode: "allow-all"},
		},
		Routes: []api.Route{},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	spec := r.node.last().spec
	if spec.VCPUs != 2 || spec.MemoryBytes != 4<<30 || spec.DiskBytes != 32<<30 || spec.ID != got.Session.ID || spec.Policy.Mode() != "allow-all" {
		t.Errorf("machine %+v", spec)
	}
	again, err := r.GetSandbox(t.Context(), "a", false)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, again); d != "" {
		t.Error("get:", d)
	}
	if len(strings.TrimPrefix(got.Session.ID, "se_")) < 20 {
		t.Error("id", got.Session.ID)
	}
}

func TestCreateEverything(t *testing.T) {
	r := newRig(t)
	no := false
	got := r.create(t, api.CreateSandboxRequest{
		Runtime: "python3.13", Timeout: api.IntOf(86_400_000), Resources: &api.Resources{VCPUs: api.IntOf(1), Memory: api.IntOf(2048)},
		Ports: []api.Int{api.IntOf(3000), api.IntOf(65535)}, Tags: map[string]string{"k": strings.Repeat("ü", 256)}, Persistent: &no,
		Region: "fra1", FailoverRegions: []string{"sfo1"}, Interactive: true, SnapshotExpiration: api.IntOf(0),
		KeepLastSnapshots: &api.KeepLastSnapshots{Count: api.IntOf(3)},
		NetworkPolicy:     &api.NetworkPolicy{Allow: &api.AllowList{{Domain: "a.test"}}, Subnets: &api.PolicySubnets{Deny: []string{"10.0.0.0/8"}}},
	})
	sb := got.Sandbox
	if sb.Persistent || sb.Runtime != "python3.13" || sb.Memory != 2048 || sb.Region != "fra1" || *sb.SnapshotExpiration != 0 || sb.KeepLastSnapshots.Count != 3 || !sb.KeepLastSnapshots.DeleteEvicted {
		t.Errorf("sandbox %+v", sb)
	}
	if got.Session.InteractivePort == 0 || got.Session.NetworkPolicy.Mode != "custom" {
		t.Errorf("session %+v", got.Session)
	}
	if len(got.Routes) != 2 || got.Routes[1].Port != 65535 || got.Routes[0].URL != "http://"+got.Routes[0].Subdomain+".localhost" {
		t.Errorf("routes %+v", got.Routes)
	}
}

func TestCreateBadFields(t *testing.T) {
	r := newRig(t)
	many := func(n int) (ports []api.Int) {
		for i := range n {
			ports = append(ports, api.IntOf(int64(i+1)))
		}
		return ports
	}
	for _, c := range []struct {
		body  string
		parts []string
		code  api.Code
	}{
		{`{"timeout":0}`, []string{"timeout", "1000"}, api.CodeTimeoutInvalid},
		{`{"timeout":-1}`, []string{"timeout"}, api.CodeTimeoutInvalid},
		{`{"timeout":999}`, []string{"timeout"}, api.CodeTimeoutInvalid},
		{`{"timeout":86400001}`, []string{"timeout", "86400000"}, api.CodeTimeoutInvalid},
		{`{"timeout":0.5}`, []string{"timeout", "integer"}, api.CodeBadRequest},
		{`{"timeout":1e30}`, []string{"timeout", "integer"}, api.CodeBadRequest},
		{`{"timeout":null}`, []string{"timeout", "integer"}, api.CodeBadRequest},
		{`{"timeout":"5m"}`, []string{"timeout", "integer"}, api.CodeBadRequest},
		{`{"timeout":true}`, []string{"timeout", "integer"}, api.CodeBadRequest},
		{`{"name":"a b"}`, []string{"name"}, api.CodeBadRequest},
		{`{"name":"` + strings.Repeat("x", 129) + `"}`, []string{"name", "128"}, api.CodeBadRequest},
		{`{"name":5}`, []string{"name", "string"}, api.CodeBadRequest},
		{`{"ports":[0]}`, []string{"ports[0]"}, api.CodeBadRequest},
		{`{"ports":[65536]}`, []string{"ports[0]"}, api.CodeBadRequest},
		{`{"ports":[80,80]}`, []string{"ports[1]", "twice"}, api.CodeBadRequest},
		{`{"ports":[61000]}`, []string{"ports[0]", "reserved"}, api.CodeBadRequest},
		{`{"ports":["80"]}`, []string{"ports"}, api.CodeBadRequest},
		{`{"resources":{"vcpus":3}}`, []string{"resources.vcpus", "even"}, api.CodeBadRequest},
		{`{"resources":{"vcpus":0}}`, []string{"resources.vcpus"}, api.CodeBadRequest},
		{`{"resources":{"vcpus":10}}`, []string{"resources.vcpus", "8"}, api.CodeBadRequest},
		{`{"resources":{"vcpus":2,"memory":5}}`, []string{"resources.memory", "4096"}, api.CodeBadRequest},
		{`{"resources":{"vcpus":"2"}}`, []string{"resources.vcpus"}, api.CodeBadRequest},
		{`{"env":{"":"x"}}`, []string{"env"}, api.CodeBadRequest},
		{`{"env":{"a=b":"x"}}`, []string{"env", "a=b"}, api.CodeBadRequest},
		{`{"env":{"a":"\u0000"}}`, []string{"env", "NUL"}, api.CodeBadRequest},
		{`{"env":{"a":1}}`, []string{"env", "string"}, api.CodeBadRequest},
		{`{"env":{"a":"` + strings.Repeat("x", 65536) + `"}}`, []string{"env", "65536"}, api.CodeBadRequest},
		{`{"tags":{"1":"","2":"","3":"","4":"","5":"","6":""}}`, []string{"tags", "5"}, api.CodeBadRequest},
		{`{"tags":{"k":"` + strings.Repeat("x", 257) + `"}}`, []string{"tags", "256"}, api.CodeBadRequest},
		{`{"image":"` + strings.Repeat("x", 256) + `"}`, []string{"image", "255"}, api.CodeBadRequest},
		{`{"image":"none"}`, []string{"image", "none", "pull"}, api.CodeBadRequest},
		{`{"image":"later"}`, nil, api.CodeImageNotReady},
		{`{"image":"custom","runtime":"node24"}`, []string{"runtime", "image"}, api.CodeBadRequest},
		{`{"runtime":"cobol"}`, []string{"runtime", "cobol", "node24"}, api.CodeBadRequest},
		{`{"region":"fra1","failoverRegions":["fra1"]}`, []string{"failoverRegions[0]"}, api.CodeBadRequest},
		{`{"networkPolicy":"open"}`, []string{"networkPolicy"}, api.CodeBadRequest},
		{`{"networkPolicy":{"allow":5}}`, []string{"networkPolicy"}, api.CodeBadRequest},
		{`{"networkPolicy":{"subnets":{"allow":["x"]}}}`, []string{"subnets"}, api.CodeBadRequest},
		{`{"snapshotExpiration":-1}`, []string{"snapshotExpiration"}, api.CodeBadRequest},
		{`{"keepLastSnapshots":{"count":11}}`, []string{"keepLastSnapshots.count"}, api.CodeBadRequest},
		{`{"mounts":{"rel":{"drive":"d"}}}`, []string{"mounts"}, api.CodeBadRequest},
		{`{"mounts":{"/a":{"drive":"d"},"/a/b":{"drive":"e"}}}`, []string{"overlap"}, api.CodeBadRequest},
		{`{"mounts":{"/a":{"drive":"d"}}}`, []string{"drive", "d"}, api.CodeNotFound},
		{`{"source":{"type":"svn"}}`, []string{"source.type"}, api.CodeBadRequest},
		{`{"source":{"type":"git","url":"file:///etc"}}`, []string{"source.url"}, api.CodeBadRequest},
		{`{"source":{"type":"git","url":"https://h/r","depth":0}}`, []string{"source.depth"}, api.CodeBadRequest},
		{`{"source":{"type":"git","url":"https://h/r","revision":"-x"}}`, []string{"source.revision"}, api.CodeBadRequest},
		{`{"source":{"type":"snapshot","snapshotId":"snap_x"}}`, []string{"snap_x"}, api.CodeNotFound},
		{`{"source":{"type":"snapshot","snapshotId":"snap_x"},"runtime":"node24"}`, []string{"runtime"}, api.CodeBadRequest},
		{`{"name":`, []string{"JSON"}, api.CodeBadRequest},
	} {
		var req api.CreateSandboxRequest
		err := api.Unmarshal([]byte(c.body), &req)
		if err == nil {
			_, err = r.CreateSandbox(t.Context(), req, "")
		}
		t.Run(c.body[:min(len(c.body), 60)], func(t *testing.T) { wantCode(t, err, c.code, c.parts...) })
	}
	_, err := r.CreateSandbox(t.Context(), api.CreateSandboxRequest{Ports: many(16)}, "")
	wantCode(t, err, api.CodeBadRequest, "ports", "15")
	r.create(t, api.CreateSandboxRequest{Ports: many(15)})
	if n := r.node.running(); n != 1 {
		t.Errorf("%d machines", n)
	}
}

func TestCreateNameTaken(t *testing.T) {
	r := newRig(t)
	r.create(t, api.CreateSandboxRequest{Name: "a"})
	_, err := r.CreateSandbox(t.Context(), api.CreateSandboxRequest{Name: "a"}, "")
	wantCode(t, err, api.CodeBadRequest, "already exists", "name")
	other, err := r.c.Project(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.CreateSandbox(t.Context(), api.CreateSandboxRequest{Name: "a"}, ""); err != nil {
		t.Fatal(err)
	}
}

// nothing checks that a failed create left nothing.
func (r *rig) nothing(t *testing.T) {
	t.Helper()
	page, err := r.ListSandboxes(t.Context(), api.ListSandboxesQuery{Page: api.Page{Limit: 50, SortOrder: api.SortAsc}, SortBy: api.SortName})
	if err != nil || len(page.Sandboxes) != 0 {
		t.Errorf("sandboxes %v, %v", page, err)
	}
	if n := r.node.running(); n != 0 {
		t.Errorf("%d machines are left", n)
	}
	if st := r.c.Status(t.Context()); st.RunningSessions != 0 {
		t.Errorf("%d sessions are left", st.RunningSessions)
	}
}

func TestCreateFails(t *testing.T) {
	r := newRig(t)
	r.node.onStart = func(context.Context, *fakeMachine) error { return fmt.Errorf("x: %w", node.ErrCapacity) }
	_, err := r.CreateSandbox(t.Context(), api.CreateSandboxRequest{Name: "a"}, "")
	wantCode(t, err, api.CodeRateLimited)
	if e, _ := errors.AsType[*api.Error](err); e.RetryAfter <= 0 || e.RetryAfter.Seconds() > 20 {
		t.Error("retry after", e.RetryAfter)
	}
	r.nothing(t)
	r.node.onStart = func(context.Context, *fakeMachine) error { return errors.New("no kvm") }
	if _, err := r.CreateSandbox(t.Context(), api.CreateSandboxRequest{Name: "a"}, "k"); err == nil || !strings.Contains(err.Error(), "no kvm") {
		t.Error(err)
	}
	r.nothing(t)
	r.node.onStart = nil
	if _, err := r.CreateSandbox(t.Context(), api.CreateSandboxRequest{Name: "a"}, "k"); err != nil {
		t.Error("the same key after a failure:", err)
	}
}

func TestCreateGivenUp(t *testing.T) {
	r := newRig(t)
	starting := make(chan struct{})
	r.node.onStart = func(ctx context.Context, _ *fakeMachine) error {
		close(starting)
		<-ctx.Done()
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-starting; cancel() }()
	if _, err := r.CreateSandbox(ctx, api.CreateSandboxRequest{Name: "a"}, ""); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.nothing(t)

	starting = make(chan struct{})
	deleted := make(chan error)
	go func() {
		<-starting
		_, err := r.DeleteSandbox(context.Background(), "a", false)
		deleted <- err
	}()
	_, err := r.CreateSandbox(t.Context(), api.CreateSandboxRequest{Name: "a"}, "")
	wantCode(t, err, api.CodeSandboxStopped)
	if err := <-deleted; err != nil {
		t.Error("delete:", err)
	}
	r.nothing(t)
}

func TestCreateIdempotent(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	ids := make(chan string, 10)
	for range 10 {
		wg.Go(func() {
			sb, err := r.CreateSandbox(t.Context(), api.CreateSandboxRequest{}, "key")
			if err != nil {
				t.Error(err)
				return
			}
			ids <- sb.Session.ID
		})
	}
	wg.Wait()
	close(ids)
	first := <-ids
	for id := range ids {
		if id != first {
			t.Errorf("sessions %s and %s", first, id)
		}
	}
	_, err := r.CreateSandbox(t.Context(), api.CreateSandboxRequest{Name: "other"}, "key")
	wantCode(t, err, api.CodeBadRequest, "Idempotency-Key")
}

func TestCreateSource(t *testing.T) {
	r := newRig(t)
	git := &api.Source{Type: "git", URL: "https://u:s3cret@h.test/x/bad.git", Revision: "main"}
	_, err := r.CreateSandbox(t.Context(), api.CreateSandboxRequest{Source: git}, "")
	wantCode(t, err, api.CodeBadRequest, "source", "fatal: could not read", "https://h.test/x/bad.git bad", "128")
	if strings.Contains(err.Error(), "s3cret") {
		t.Error("the secret is told:", err)
	}
	r.nothing(t)
	_, err = r.CreateSandbox(t.Context(), api.CreateSandboxRequest{Source: &api.Source{Type: "tarball", URL: "https://h.test/bad.tgz?sig=s3cret"}}, "")
	wantCode(t, err, api.CodeBadRequest, "source", "fatal")
	if strings.Contains(err.Error(), "s3cret") {
		t.Error("the secret is told:", err)
	}
	r.nothing(t)
	git.URL = "https://h.test/x/good.git"
	sb := r.create(t, api.CreateSandboxRequest{Source: git})
	list, err := r.ListCommands(t.Context(), sb.Session.ID)
	if err != nil || len(list) != 0 {
		t.Errorf("commands %v, %v", list, err)
	}
	for _, p := range r.node.last().procs {
		if strings.Contains(strings.Join(p.Argv[3:], " ")+strings.Join(p.Env, " "), "s3cret") {
			t.Error("the secret is in", p.Argv, p.Env)
		}
		if p.User.UID != 1000 {
			t.Error("runs as", p.User)
		}
	}
}
