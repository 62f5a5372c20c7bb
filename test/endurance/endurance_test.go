// Package endurance does many times, or to many sandboxes at once, what the
// other suites do once, and then looks for what is left.
package endurance

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/test/testserver"
)

const (
	inARow = 200
	atOnce = 100
	// fdSlack is what a server's runtime may hold more after a while:
	// connections of the store, idle connections of clients.
	fdSlack = 10
	settle  = 20 * time.Second
)

// TestManyInARow makes and removes sandboxes one after the other, every
// fourth while a command runs in it, and finds the server as it was. What is
// left on the machine is checked when the server ends.
func TestManyInARow(t *testing.T) {
	server := testserver.Start(t, "--warm", "0")
	before := 0
	for i := range inARow {
		var made struct {
			Sandbox struct{ Name string }
			Session struct{ ID string }
		}
		server.Call(t, http.MethodPost, "/v3/sandboxes", map[string]any{"persistent": false}, &made)
		cmd := map[string]any{"command": "true", "wait": true}
		if i%4 == 0 {
			cmd = map[string]any{"command": "sh", "args": []string{"-c", "sleep 600 & sleep 600"}}
		}
		server.Call(t, http.MethodPost, "/v2/sandboxes/sessions/"+made.Session.ID+"/cmd", cmd, nil)
		if i%2 == 0 {
			server.Call(t, http.MethodPost, "/v2/sandboxes/sessions/"+made.Session.ID+"/stop", nil, nil)
		}
		server.Call(t, http.MethodDelete, "/v2/sandboxes/"+made.Sandbox.Name, nil, nil)
		if i == inARow/10 { // the first ones open what stays open
			before = server.OpenFiles(t)
		}
	}
	await(t, "descriptors of the server to be given back", func() bool { return server.OpenFiles(t) <= before+fdSlack })
}

// TestManyAtOnce has idle sandboxes beside each other, each of which still
// answers.
func TestManyAtOnce(t *testing.T) {
	server := testserver.Start(t, "--warm", "0")
	boxes := make([]*testserver.Sandbox, atOnce)
	for i := range boxes {
		boxes[i] = server.Create(t, map[string]any{"resources": map[string]any{"vcpus": 1}})
	}
	var answers sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, box := range boxes {
		answers.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if r := box.Run(t, nil, "hostname"); r.ExitCode != 0 || r.Stdout == "" {
				t.Errorf("sandbox %s answered %+v", box.Name, r)
			}
		})
	}
	answers.Wait()
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(settle); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("waited %v for %s in vain", settle, what)
			return
		}
	}
}
