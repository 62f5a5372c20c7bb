package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/server/fakecontrol"
)

// deadline bounds every wait of these tests; none comes near it.
const deadline = 20 * time.Second

// request sends a request; header is "Name: value" lines over the defaults.
func request(t *testing.T, ts *httptest.Server, method, path string, body io.Reader, header ...string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, ts.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+fakecontrol.AlphaToken)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// call sends JSON and decodes the answer, which must have that status.
func call(t *testing.T, ts *httptest.Server, method, path, body string, status int, out any, header ...string) {
	t.Helper()
	resp := request(t, ts, method, path, strings.NewReader(body), header...)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if resp.StatusCode != status {
		t.Fatalf("%s %s: status %d, want %d: %s", method, path, resp.StatusCode, status, text)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
}

// newSession makes a sandbox and returns the path of its session.
func newSession(t *testing.T, ts *httptest.Server, header ...string) string {
	t.Helper()
	var out api.SandboxAndSession
	call(t, ts, "POST", "/v3/sandboxes", `{}`, 200, &out, header...)
	return "/v2/sandboxes/sessions/" + out.Session.ID
}

// start runs a command without waiting and returns its path.
func start(t *testing.T, ts *httptest.Server, session, body string) string {
	t.Helper()
	var out api.CommandResponse
	call(t, ts, "POST", session+"/cmd", body, 200, &out)
	return session + "/cmd/" + out.Command.ID
}

// item is a line of a stream.
type item struct {
	Command *api.Command
	Stream  string
	Data    json.RawMessage
}

func (i item) text() string {
	var s string
	_ = json.Unmarshal(i.Data, &s)
	return s
}

// readItem reads the next line, which must be whole.
func readItem(t *testing.T, r *bufio.Reader) (item, bool) {
	t.Helper()
	line, err := r.ReadBytes('\n')
	if err == io.EOF && len(line) == 0 {
		return item{}, false
	}
	if err != nil {
		t.Fatalf("read line: %v after %q", err, line)
	}
	var i item
	if err := json.Unmarshal(line, &i); err != nil {
		t.Fatalf("line %q: %v", line, err)
	}
	return i, true
}
