// Package storetest is the suite that every implementation of store.Store
// passes.
package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Opener opens the data at dir, again if it was closed before.
type Opener func(t *testing.T, dir string) store.Store

// Run runs the suite.
func Run(t *testing.T, open Opener) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, store.Store)
	}{
		{"sandbox", testSandbox},
		{"isolation", testIsolation},
		{"update", testUpdate},
		{"session", testSession},
		{"commands", testCommands},
		{"keys", testKeys},
		{"delete", testDelete},
		{"snapshots", testSnapshots},
		{"roll-back", testRollBack},
		{"expiry", testExpiry},
		{"retention", testRetention},
		{"forgotten", testForgotten},
		{"image in use", testImageInUse},
		{"drives", testDrives},
		{"filters", testFilters},
		{"cursors", testCursors},
		{"pages under inserts", testPages},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t, t.TempDir())) })
	}
	t.Run("tokens", func(t *testing.T) { testTokens(t, open) })
	t.Run("reopen", func(t *testing.T) { testReopen(t, open) })
	t.Run("two processes", func(t *testing.T) { testTwo(t, open) })
}

// made is a sandbox with its first session.
func made(project, name string, at int64) (store.Sandbox, store.Session) {
	sb := store.Sandbox{
		ID: api.NewID(api.SandboxPrefix), Project: project, Name: name, CreatedAt: at, UpdatedAt: at,
		Status: api.StatusPending, StatusUpdatedAt: at, CurrentSessionID: api.NewID(api.SessionPrefix),
		Tags:  map[string]string{"env": "test"},
		Ports: []store.Port{{Port: 3000, Subdomain: api.NewSubdomain()}},
		SandboxSpec: store.SandboxSpec{
			Persistent: true, Region: "iad1", VCPUs: 2, Image: "i@sha256:0", Timeout: 300_000, Cwd: "/w",
			Env: map[string]string{"A": "b\nc=☕"},
			NetworkPolicy: &api.NetworkPolicy{Allow: &api.AllowList{{Domain: "z.test", Rules: []api.PolicyRule{
				{Transform: []api.RuleTransform{{Headers: map[string]string{"x": "secret"}}}}}}, {Domain: "a.test", Rules: []api.PolicyRule{}}}},
		},
	}
	se := store.Session{
		ID: sb.CurrentSessionID, Project: project, SandboxID: sb.ID, SandboxName: name, CreatedAt: at, Status: api.StatusPending,
		SessionData: store.SessionData{VCPUs: 2, Region: "iad1", Timeout: 300_000, RequestedAt: at, UpdatedAt: at, Cwd: "/w"},
	}
	return sb, se
}

func create(t *testing.T, s store.Store, project, name string, at int64) (store.Sandbox, store.Session) {
	t.Helper()
	sb, se := made(project, name, at)
	if err := s.CreateSandbox(t.Context(), sb, se, nil); err != nil {
		t.Fatal(err)
	}
	return sb, se
}

func want[T any](t *testing.T, what string, want T) func(T, error) {
	t.Helper()
	return func(got T, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%s (-want +got):\n%s", what, d)
		}
	}
}

func wantErr(t *testing.T, what string, want, got error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("%s: error %v, want %v", what, got, want)
	}
}

func testSandbox(t *testing.T, s store.Store) {
	ctx := t.Context()
	if err := errors.Join(s.EnsureProject(ctx, "p", 1), s.EnsureProject(ctx, "p", 2)); err != nil {
		t.Fatal(err)
	}
	sb, se := create(t, s, "p", "one", 10)
	want(t, "by name", sb)(s.Sandbox(ctx, "p", "one"))
	want(t, "by id", sb)(s.SandboxByID(ctx, sb.ID))
	want(t, "by subdomain", sb)(s.SandboxOfSubdomain(ctx, sb.Ports[0].Subdomain))
	want(t, "session", se)(s.Session(ctx, "p", se.ID))
	want(t, "project of session", "p")(s.ProjectOfSession(ctx, se.ID))
	want(t, "sessions", []string{se.ID})(s.SessionIDs(ctx, sb.ID))
	want(t, "sessions of none", []string{})(s.SessionIDs(ctx, "sbx_none"))
	again, againSession := made("p", "one", 11)
	wantErr(t, "same name", store.ErrExists, s.CreateSandbox(ctx, again, againSession, nil))
	_, err := s.Session(ctx, "p", againSession.ID)
	wantErr(t, "session of a sandbox that was refused", store.ErrNotFound, err)
}

func testIsolation(t *testing.T, s store.Store) {
	ctx := t.Context()
	sb, se := create(t, s, "p", "one", 10)
	other, _ := create(t, s, "q", "one", 10)
	want(t, "same name elsewhere", other)(s.Sandbox(ctx, "q", "one"))
	_, err := s.Session(ctx, "q", se.ID)
	wantErr(t, "session of another project", store.ErrNotFound, err)
	list, _, err := s.ListSandboxes(ctx, "q", api.ListSandboxesQuery{Page: api.Page{Limit: 50, SortOrder: api.SortDesc}, SortBy: api.SortCreatedAt})
	if err != nil || len(list) != 1 || list[0].ID == sb.ID {
		t.Fatalf("list of q: %v, %v", list, err)
	}
}

func testUpdate(t *testing.T, s store.Store) {
	ctx := t.Context()
	sb, _ := create(t, s, "p", "one", 10)
	old := sb.Ports[0].Subdomain
	sb.Timeout, sb.UpdatedAt, sb.Tags = 5000, 20, map[string]string{"x": "y"}
	sb.Ports = []store.Port{{Port: 80, Subdomain: api.NewSubdomain()}}
	got, err := s.UpdateSandbox(ctx, sb.ID, func(in *store.Sandbox) error {
		in.Timeout, in.UpdatedAt, in.Tags, in.Ports = 5000, 20, sb.Tags, sb.Ports
		return nil
	})
	want(t, "answer", sb)(got, err)
	want(t, "stored", sb)(s.Sandbox(ctx, "p", "one"))
	_, err = s.SandboxOfSubdomain(ctx, old)
	wantErr(t, "old subdomain", store.ErrNotFound, err)

	no := errors.New("no")
	_, err = s.UpdateSandbox(ctx, sb.ID, func(in *store.Sandbox) error { in.Timeout = 1; return no })
	wantErr(t, "refused change", no, err)
	want(t, "after a refused change", sb)(s.Sandbox(ctx, "p", "one"))
	_, err = s.UpdateSandbox(ctx, "sbx_none", func(*store.Sandbox) error { return nil })
	wantErr(t, "unknown", store.ErrNotFound, err)
}

func testSession(t *testing.T, s store.Store) {
	ctx := t.Context()
	sb, se := create(t, s, "p", "one", 10)
	se.Status, se.StartedAt, se.UpdatedAt = api.StatusRunning, 12, 12
	if err := s.UpdateSession(ctx, se); err != nil {
		t.Fatal(err)
	}
	sb.Status, sb.StatusUpdatedAt = api.StatusRunning, 12
	want(t, "sandbox follows", sb)(s.SandboxByID(ctx, sb.ID))
	want(t, "unfinished", []store.Session{se})(s.UnfinishedSessions(ctx))

	se.Status, se.UpdatedAt, se.Usage = api.StatusStopped, 20, &store.Usage{EgressBytes: 1, IngressBytes: 2, CPUMs: 3, DurationMs: 4}
	for range 2 { // the second time adds nothing
		if err := s.UpdateSession(ctx, se); err != nil {
			t.Fatal(err)
		}
	}
	sb.Status, sb.StatusUpdatedAt, sb.Totals = api.StatusStopped, 20, *se.Usage
	want(t, "totals", sb)(s.SandboxByID(ctx, sb.ID))
	want(t, "none unfinished", []store.Session{})(s.UnfinishedSessions(ctx))

	second := se
	second.ID, second.Status, second.Usage, second.CreatedAt, second.UpdatedAt = api.NewID(api.SessionPrefix), api.StatusPending, nil, 30, 30
	if err := s.AddSession(ctx, second); err != nil {
		t.Fatal(err)
	}
	sb.CurrentSessionID, sb.Status, sb.StatusUpdatedAt = second.ID, api.StatusPending, 30
	want(t, "second is current", sb)(s.SandboxByID(ctx, sb.ID))
	se.Reason = "late"
	se.UpdatedAt = 40
	if err := s.UpdateSession(ctx, se); err != nil {
		t.Fatal(err)
	}
	want(t, "an earlier session changes nothing", sb)(s.SandboxByID(ctx, sb.ID))
	list, next, err := s.ListSessions(ctx, "p", api.ListSessionsQuery{Page: api.Page{Limit: 5, SortOrder: api.SortDesc}, Name: "one"})
	want(t, "sessions", []store.Session{second, se})(list, err)
	if next != "" {
		t.Fatalf("next %q", next)
	}
	se.ID = "se_none"
	wantErr(t, "unknown", store.ErrNotFound, s.UpdateSession(ctx, se))
}

func testCommands(t *testing.T, s store.Store) {
	ctx := t.Context()
	_, se := create(t, s, "p", "one", 10)
	var all []store.Command
	for i := range 5 {
		c := store.Command{ID: api.NewID(api.CommandPrefix), SessionID: se.ID, StartedAt: 100, CommandData: store.CommandData{Name: "sh", Args: []string{"-c", fmt.Sprint(i)}, Cwd: "/"}}
		if err := s.CreateCommand(ctx, c, nil); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	code := 3
	all[1].ExitCode, all[1].DurationMs = &code, 55
	if err := s.UpdateCommand(ctx, all[1]); err != nil {
		t.Fatal(err)
	}
	want(t, "one", all[1])(s.Command(ctx, se.ID, all[1].ID))
	_, err := s.Command(ctx, "se_other", all[1].ID)
	wantErr(t, "of another session", store.ErrNotFound, err)
	if err := s.DeleteCommand(ctx, all[0].ID); err != nil {
		t.Fatal(err)
	}
	want(t, "list", all[1:])(s.ListCommands(ctx, se.ID))
	wantErr(t, "deleted", store.ErrNotFound, s.DeleteCommand(ctx, all[0].ID))
}

func testKeys(t *testing.T, s store.Store) {
	ctx := t.Context()
	sb, se := made("p", "one", 10)
	key := store.Key{Project: "p", Scope: "create", Key: "k", RequestHash: store.HashToken("r"), ResultID: sb.ID, CreatedAt: 1000}
	if err := s.CreateSandbox(ctx, sb, se, &key); err != nil {
		t.Fatal(err)
	}
	want(t, "key", key)(s.FindKey(ctx, "p", "create", "k", 0))
	for _, c := range [][3]string{{"q", "create", "k"}, {"p", "cmd", "k"}, {"p", "create", "other"}} {
		_, err := s.FindKey(ctx, c[0], c[1], c[2], 0)
		wantErr(t, fmt.Sprint(c), store.ErrNotFound, err)
	}
	_, err := s.FindKey(ctx, "p", "create", "k", 1001)
	wantErr(t, "old key", store.ErrNotFound, err)
	sb2, se2 := made("p", "two", 11)
	wantErr(t, "used key", store.ErrKeyUsed, s.CreateSandbox(ctx, sb2, se2, &key))
	_, err = s.Sandbox(ctx, "p", "two")
	wantErr(t, "nothing was stored", store.ErrNotFound, err)
	later := key
	later.CreatedAt += 25 * 60 * 60 * 1000
	later.ResultID = sb2.ID
	if err := s.CreateSandbox(ctx, sb2, se2, &later); err != nil {
		t.Fatalf("key that was used more than a day ago: %v", err)
	}
}

func testDelete(t *testing.T, s store.Store) {
	ctx := t.Context()
	sb, se := made("p", "one", 10)
	key := store.Key{Project: "p", Scope: "create", Key: "k", ResultID: sb.ID, CreatedAt: 1000}
	cmd := store.Command{ID: api.NewID(api.CommandPrefix), SessionID: se.ID}
	cmdKey := store.Key{Project: "p", Scope: se.ID, Key: "k", ResultID: cmd.ID, CreatedAt: 1000}
	if err := errors.Join(s.CreateSandbox(ctx, sb, se, &key), s.CreateCommand(ctx, cmd, &cmdKey), s.DeleteSandbox(ctx, sb.ID)); err != nil {
		t.Fatal(err)
	}
	_, e1 := s.SandboxByID(ctx, sb.ID)
	_, e2 := s.Session(ctx, "p", se.ID)
	_, e3 := s.Command(ctx, se.ID, cmd.ID)
	_, e4 := s.FindKey(ctx, "p", "create", "k", 0)
	_, e5 := s.FindKey(ctx, "p", se.ID, "k", 0)
	_, e6 := s.SandboxOfSubdomain(ctx, sb.Ports[0].Subdomain)
	for i, err := range []error{e1, e2, e3, e4, e5, e6, s.DeleteSandbox(ctx, sb.ID)} {
		wantErr(t, fmt.Sprint("look-up ", i), store.ErrNotFound, err)
	}
	want(t, "session ids", []string{})(s.SessionIDs(ctx, ""))
	create(t, s, "p", "one", 20)
}

func testReopen(t *testing.T, open Opener) {
	dir := t.TempDir()
	s := open(t, dir)
	sb, se := create(t, s, "p", "one", 10)
	tok := store.Token{Hash: store.HashToken("t"), Project: "p", CreatedAt: 1}
	if err := errors.Join(s.AddToken(t.Context(), tok), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	want(t, "sandbox", sb)(s.Sandbox(t.Context(), "p", "one"))
	want(t, "session", []string{se.ID})(s.SessionIDs(t.Context(), ""))
	want(t, "token", tok)(s.FindToken(t.Context(), tok.Hash))
	_, err := s.FindToken(t.Context(), store.HashToken("u"))
	wantErr(t, "unknown token", store.ErrNotFound, err)
}

func testTokens(t *testing.T, open Opener) {
	s := open(t, t.TempDir())
	ctx := t.Context()
	a := store.Token{Hash: store.HashToken("a"), Project: "p", CreatedAt: 1}
	b := store.Token{Hash: store.HashToken("b"), Project: "q", CreatedAt: 2}
	if err := errors.Join(s.AddToken(ctx, b), s.AddToken(ctx, a)); err != nil {
		t.Fatal(err)
	}
	want(t, "all", []store.Token{a, b})(s.Tokens(ctx, ""))
	want(t, "of q", []store.Token{b})(s.Tokens(ctx, "q"))
	if err := s.RemoveToken(ctx, a.Hash); err != nil {
		t.Fatal(err)
	}
	_, err := s.FindToken(ctx, a.Hash)
	wantErr(t, "removed", store.ErrNotFound, err)
	wantErr(t, "removed twice", store.ErrNotFound, s.RemoveToken(ctx, a.Hash))
	want(t, "the rest", []store.Token{b})(s.Tokens(ctx, ""))
}

func testTwo(t *testing.T, open Opener) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	errs := make(chan error)
	for _, s := range []store.Store{a, b} {
		go func() {
			var err error
			for i := range 30 {
				tok := store.Token{Hash: store.HashToken(fmt.Sprintf("%p %d", s, i)), Project: "p"}
				_, found := s.FindToken(t.Context(), tok.Hash)
				if !errors.Is(found, store.ErrNotFound) {
					err = errors.Join(err, fmt.Errorf("before: %w", found))
				}
				err = errors.Join(err, s.AddToken(t.Context(), tok))
				for _, other := range []store.Store{a, b} {
					_, found := other.FindToken(t.Context(), tok.Hash)
					err = errors.Join(err, found)
				}
			}
			errs <- err
		}()
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
}

func names(list []store.Sandbox) []string {
	out := []string{}
	for _, sb := range list {
		out = append(out, sb.Name)
	}
	return out
}

func sorted(s []string) []string { s = slices.Clone(s); slices.Sort(s); return s }
