package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
	"github.com/glovebox-dev/glovebox/internal/server/fakecontrol"
)

func TestSnapshots(t *testing.T) {
	ctx := t.Context()
	// The first answer is lost: the call must not be carried out twice.
	c, control := newClient(t, failFirst(1, "/snapshot", 0))
	s := newSandbox(t, c)
	never := time.Duration(0)
	first, err := s.Snapshot(ctx, client.SnapshotOptions{Expiration: &never})
	if err != nil || first.ExpiresAt != 0 || s.Session().Status != api.StatusStopped || control.Calls("CreateSnapshot") != 1 {
		t.Fatalf("%+v, %v, session %+v", first, err, s.Session())
	}
	hour := time.Hour
	second, err := s.Snapshot(ctx, client.SnapshotOptions{Expiration: &hour}) // resumes
	if err != nil || second.ExpiresAt != fakecontrol.Epoch+3_600_000 || second.ParentID != first.ID {
		t.Fatalf("%+v, %v", second, err)
	}
	var listed []string
	for sn, err := range c.ListSnapshots(ctx, s.Name()) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, sn.ID)
	}
	if len(listed) != 2 {
		t.Errorf("%v", listed)
	}
	if n, err := c.SnapshotNode(ctx, second.ID); err != nil || n.Snapshot.ID != second.ID || n.Count != "1" {
		t.Errorf("%+v, %v", n, err)
	}
	for n, err := range c.SnapshotAncestors(ctx, second.ID) {
		if err != nil || n.Snapshot.ID != first.ID {
			t.Errorf("%+v, %v", n, err)
		}
	}
	for n, err := range c.SnapshotDescendants(ctx, second.ID) {
		t.Errorf("%+v, %v", n, err)
	}
	if sn, err := c.DeleteSnapshot(ctx, first.ID); err != nil || sn.Status != api.SnapshotDeleted {
		t.Errorf("%+v, %v", sn, err)
	}
	if sn, err := c.GetSnapshot(ctx, first.ID); err != nil || sn.Status != api.SnapshotDeleted {
		t.Errorf("%+v, %v", sn, err)
	}
	_, err = c.GetSnapshot(ctx, "snap_none")
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeNotFound || !strings.Contains(err.Error(), "snap_none") {
		t.Error(err)
	}
	for _, err := range []error{ignore(c.GetSnapshot(ctx, "")), ignore(c.ForkSandbox(ctx, "", api.ForkSandboxRequest{}))} {
		if err == nil || !strings.Contains(err.Error(), "empty") {
			t.Error(err)
		}
	}
}

func ignore[T any](_ T, err error) error { return err }

func TestFork(t *testing.T) {
	ctx := t.Context()
	c, _ := newClient(t, failFirst(1, "/fork", 0))
	s := newSandbox(t, c)
	if err := s.WriteFile(ctx, "x", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	fork, err := c.ForkSandbox(ctx, s.Name(), api.ForkSandboxRequest{Name: "fork"})
	if err != nil || fork.Name() != "fork" {
		t.Fatal(fork, err)
	}
	r, err := fork.ReadFile(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); err != nil || string(b) != "1" {
		t.Errorf("%q, %v", b, err)
	}
	n := 0
	for _, err := range c.ListSandboxes(ctx, client.ListOptions{}) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 2 {
		t.Errorf("%d sandboxes", n)
	}
}

func TestGetOrCreate(t *testing.T) {
	ctx := t.Context()
	// A sandbox whose snapshot has expired, until it is deleted.
	expired, faster := false, false
	c, _ := newClient(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case expired && r.Method == http.MethodGet && r.URL.Query().Get("resume") == "true":
				w.WriteHeader(http.StatusGone)
				fmt.Fprint(w, `{"error":{"code":"snapshot_not_found","message":"expired"}}`)
				return
			case faster && r.Method == http.MethodGet:
				faster = false
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"error":{"code":"not_found","message":"not yet"}}`)
				return
			case r.Method == http.MethodDelete:
				expired = false
			}
			next.ServeHTTP(w, r)
		})
	})
	get := func(name string, want bool) *client.Sandbox {
		t.Helper()
		s, created, err := c.GetOrCreateSandbox(ctx, api.CreateSandboxRequest{Name: name})
		if err != nil || created != want {
			t.Fatalf("created %v, %v; want %v", created, err, want)
		}
		return s
	}
	get("", true)
	first := get("a", true)
	if again := get("a", false); again.Session().ID != first.Session().ID {
		t.Error("another session")
	}
	if _, err := first.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if again := get("a", false); again.Session().Status != api.StatusRunning {
		t.Errorf("%+v", again.Session())
	}
	expired = true
	get("a", true)
	faster = true
	get("a", false)
}
