package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/server"
	"github.com/glovebox-dev/glovebox/internal/server/fakecontrol"
)

// Every token against every object of another project: as if it never was.
func TestProjectsAreWorlds(t *testing.T) {
	ts, _ := newServer(t, nil)
	const root, beta = "Authorization: Bearer root-token", "Authorization: Bearer beta-token"
	session := newSession(t, ts) // alpha's
	cmd := start(t, ts, session, `{"command":"true"}`)
	calls := []struct{ method, path, body string }{
		{"GET", "/v2/sandboxes/sandbox-1", ""},
		{"PATCH", "/v2/sandboxes/sandbox-1", "{}"},
		{"GET", session, ""},
		{"POST", session + "/extend-timeout", `{"duration":1000}`},
		{"POST", session + "/network-policy", `{"mode":"deny-all"}`},
		{"POST", session + "/interactive", `{}`},
		{"POST", session + "/cmd", `{"command":"true"}`},
		{"GET", session + "/cmd", ""},
		{"GET", cmd, ""},
		{"GET", cmd + "?wait=true", ""},
		{"GET", cmd + "/logs", ""},
		{"POST", cmd + "/kill", `{}`},
		{"POST", cmd + "/stdin", ``},
		{"POST", session + "/fs/read", `{"path":"/etc/hostname"}`},
		{"POST", session + "/fs/write", ``},
		{"POST", session + "/fs/mkdir", `{"path":"x"}`},
		{"POST", session + "/stop", ``},
		{"DELETE", "/v2/sandboxes/sandbox-1", ""},
	}
	for _, c := range calls {
		for _, query := range []string{"", "projectId=alpha", "project=alpha&teamId=alpha"} {
			path := c.path + "?" + query
			if strings.Contains(c.path, "?") {
				path = c.path + "&" + query
			}
			var out api.ErrorResponse
			call(t, ts, c.method, path, c.body, 404, &out, beta)
			if out.Error.Code != api.CodeNotFound {
				t.Errorf("%s %s: code %s", c.method, path, out.Error.Code)
			}
		}
		// The first token, in a project that it names.
		call(t, ts, c.method, strings.Replace(c.path+"&projectId=beta", "&", map[bool]string{true: "&", false: "?"}[strings.Contains(c.path, "?")], 1), c.body, 404, nil, root)
	}
	// The first token finds a session without naming the project, as the
	// published client's calls do.
	call(t, ts, "GET", session, "", 200, nil, root)
	call(t, ts, "GET", cmd+"/logs", "", 200, nil, root)
	call(t, ts, "GET", "/v2/sandboxes/sandbox-1", "", 404, nil, root)
	call(t, ts, "GET", "/v2/sandboxes/sandbox-1?projectId=alpha", "", 200, nil, root)
	// A project's own token is not moved by what the request says.
	call(t, ts, "GET", "/v2/sandboxes/sandbox-1?projectId=beta", "", 200, nil)
}

func TestProjectOfABody(t *testing.T) {
	ts, _ := newServer(t, nil)
	const root = "Authorization: Bearer root-token"
	call(t, ts, "POST", "/v3/sandboxes?teamId=team_x", `{"projectId":"gamma","name":"a"}`, 200, nil, root)
	call(t, ts, "GET", "/v2/sandboxes/a?projectId=gamma", "", 200, nil, root)
	call(t, ts, "GET", "/v2/sandboxes/a", "", 404, nil, root)
	call(t, ts, "POST", "/v3/sandboxes", `{"name":"b"}`, 200, nil, root)
	call(t, ts, "GET", "/v2/sandboxes/b?project=default", "", 200, nil, root)
}

func TestIdempotencyKey(t *testing.T) {
	ts, control := newServer(t, nil)
	var a, b api.SandboxAndSession
	call(t, ts, "POST", "/v3/sandboxes", `{}`, 200, &a, "Idempotency-Key: k1")
	call(t, ts, "POST", "/v3/sandboxes", `{}`, 200, &b, "Idempotency-Key: k1")
	if a.Sandbox.Name != b.Sandbox.Name || control.Calls("CreateSandbox") != 1 {
		t.Errorf("%s and %s, %d created", a.Sandbox.Name, b.Sandbox.Name, control.Calls("CreateSandbox"))
	}
}

func TestBodyLimits(t *testing.T) {
	ts, _ := newServer(t, func(c *server.Config) { c.MaxBody = 1000 })
	var out api.ErrorResponse
	call(t, ts, "POST", "/v3/sandboxes", `{"name":"`+strings.Repeat("a", 2000)+`"}`, 400, &out)
	if !strings.Contains(out.Error.Message, "1000 bytes") {
		t.Errorf("message %q", out.Error.Message)
	}
	call(t, ts, "POST", "/v3/sandboxes", "{\"name\":\"\xff\"}", 400, &out)
	if !strings.Contains(out.Error.Message, "UTF-8") {
		t.Errorf("message %q", out.Error.Message)
	}
}

func TestTooManyRequests(t *testing.T) {
	ts, _ := newServer(t, func(c *server.Config) { c.MaxRequests = 1 })
	session := newSession(t, ts)
	cmd := start(t, ts, session, `{"command":"sleep"}`)
	request(t, ts, "GET", cmd+"/logs", nil) // stays
	resp := request(t, ts, "GET", "/v2/sandboxes", nil)
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("status %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
}

func TestNotReady(t *testing.T) {
	ts, _ := newServer(t, func(c *server.Config) {
		c.Health = func() server.Health {
			return server.Health{Status: server.HealthStarting, Reason: "making the default image", Progress: 0.25}
		}
	})
	resp := request(t, ts, "GET", "/healthz", nil, "Authorization: ")
	body, _ := io.ReadAll(resp.Body)
	if want := `{"status":"starting","reason":"making the default image","progress":0.25}` + "\n"; resp.StatusCode != 503 || string(body) != want {
		t.Errorf("status %d, %s", resp.StatusCode, body)
	}
	call(t, ts, "GET", "/health", "", 200, nil)
}

func TestPreviewHosts(t *testing.T) {
	ts, _ := newServer(t, func(c *server.Config) {
		c.IsPreviewHost = func(host string) bool { return strings.HasPrefix(host, "sb-") }
		c.Preview = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "preview of ", r.Host) })
	})
	req, err := http.NewRequestWithContext(t.Context(), "GET", ts.URL+"/v2/sandboxes", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "sb-1.localhost:7070"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "preview of sb-1.localhost:7070" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// safeBuffer is a log that many requests write to.
type safeBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *safeBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func TestLogHoldsNoSecrets(t *testing.T) {
	var log safeBuffer
	ts, _ := newServer(t, func(c *server.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	call(t, ts, "POST", "/v3/sandboxes", `{"env":{"KEY":"hunter2"}}`, 200, nil)
	call(t, ts, "GET", "/v1/interactive?token=it_secret", "", 400, nil)
	var broken api.ErrorResponse
	call(t, ts, "POST", "/v3/sandboxes", `{"name":"broken"}`, 500, &broken)
	call(t, ts, "POST", "/v3/sandboxes", `{"name":"panic"}`, 409, nil)
	ts.Close() // waits for the handlers, and so for their lines
	for _, secret := range []string{"alpha-token", "hunter2", "it_secret"} {
		if strings.Contains(log.text(), secret) {
			t.Errorf("the log holds %s", secret)
		}
	}
	for _, want := range []string{"secret detail of the inside", "a bug", "method=POST path=/v3/sandboxes status=500"} {
		if !strings.Contains(log.text(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.text())
		}
	}
	if strings.Contains(broken.Error.Message, "inside") {
		t.Errorf("the client was told %q", broken.Error.Message)
	}
	_, id, _ := strings.Cut(broken.Error.Message, "look for ")
	if id, _, _ = strings.Cut(id, " "); !strings.Contains(log.text(), "request="+id) {
		t.Errorf("the log lacks the id %q", id)
	}
}

func TestEveryCodeHasAStatus(t *testing.T) {
	rec := httptest.NewRecorder()
	s, err := server.New(server.Config{Control: fakecontrol.New(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/v2/sandboxes", nil))
	if rec.Code != 401 {
		t.Errorf("status %d", rec.Code)
	}
	if _, err := server.New(server.Config{}); err == nil {
		t.Error("a server without control was made")
	}
}

// serve runs Serve and returns its address and what ends it.
func serve(t *testing.T, control *fakecontrol.Control) (url string, shutdown func() error) {
	t.Helper()
	s, err := server.New(server.Config{Control: control, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	shutdown = sync.OnceValue(func() error { cancel(); return <-served })
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := shutdown(); err != nil {
			t.Error(err)
		}
		control.Close()
	})
	return "http://" + ln.Addr().String(), shutdown
}

func TestUnencryptedHTTP2(t *testing.T) {
	url, _ := serve(t, fakecontrol.New())
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &protocols}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.StatusCode != 200 {
		t.Errorf("HTTP/%d, status %d", resp.ProtoMajor, resp.StatusCode)
	}
}

// A listener that only root reaches asks for no token, but minds a wrong one.
func TestLocalToken(t *testing.T) {
	ts, _ := newServer(t, func(c *server.Config) { c.LocalToken = fakecontrol.RootToken })
	for header, status := range map[string]int{"": 200, "Bearer ": 200, "Bearer wrong": 401} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", ts.URL+"/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			req.Header.Set("Authorization", header)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("Authorization %q: status %d, want %d", header, resp.StatusCode, status)
		}
	}
}
