package testserver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// Sandbox is one made through the API; it is deleted when the test ends.
type Sandbox struct {
	Name    string
	Session string
	server  *Server
}

// Result of a command.
type Result struct {
	Stdout, Stderr string
	ExitCode       int
}

// Call sends a request with a JSON body (nil for none) and decodes the JSON
// answer into out (nil to ignore it).
func (s *Server) Call(t testing.TB, method, path string, body, out any) {
	t.Helper()
	answer := s.Send(t, method, path, body)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if answer.StatusCode/100 != 2 {
		t.Fatalf("%s %s: status %d: %s", method, path, answer.StatusCode, text)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatalf("%s %s: %v: %s", method, path, err, text)
	}
}

// Send sends a request with a JSON body and returns the answer, to be closed
// by the caller.
func (s *Server) Send(t testing.TB, method, path string, body any) *http.Response {
	t.Helper()
	var reader io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		reader = bytes.NewReader(b)
	}
	req, err := http.NewRequest(method, s.URL+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Token)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// Create makes a sandbox from fields of the API's create call.
func (s *Server) Create(t testing.TB, fields map[string]any) *Sandbox {
	t.Helper()
	if fields == nil {
		fields = map[string]any{}
	}
	if _, ok := fields["persistent"]; !ok {
		fields["persistent"] = false
	}
	var made struct {
		Sandbox struct{ Name string }
		Session struct{ ID string }
	}
	s.Call(t, http.MethodPost, "/v3/sandboxes", fields, &made)
	t.Cleanup(func() { s.Call(t, http.MethodDelete, "/v2/sandboxes/"+made.Sandbox.Name, nil, nil) })
	return &Sandbox{Name: made.Sandbox.Name, Session: made.Session.ID, server: s}
}

// How a command's stream can end other than with the command: both are whole.
var (
	ErrEndedEarly  = errors.New("the stream ended before the command")
	ErrStreamError = errors.New("the stream ended with an error")
)

// line is one of a command's stream.
type line struct {
	Stream  string
	Data    json.RawMessage
	Command *struct{ ExitCode *int }
}

// Run executes a command to its end; extra holds further fields of the call,
// such as sudo.
func (b *Sandbox) Run(t testing.TB, extra map[string]any, command string, args ...string) Result {
	t.Helper()
	body := map[string]any{"command": command, "args": args, "wait": true, "logs": true}
	for k, v := range extra {
		body[k] = v
	}
	answer := b.server.Send(t, http.MethodPost, "/v2/sandboxes/sessions/"+b.Session+"/cmd", body)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		t.Fatalf("run %s: status %d: %s", command, answer.StatusCode, text)
	}
	result, err := ReadStream(answer.Body)
	if err != nil {
		t.Fatalf("run %s: %v", command, err)
	}
	return result
}

// ReadStream reads a command's NDJSON to its end. It fails where a line is
// not whole, and where the stream ends before the command.
func ReadStream(r io.Reader) (Result, error) {
	var result Result
	lines := bufio.NewReader(r)
	for {
		text, err := lines.ReadBytes('\n')
		if err == io.EOF && len(text) == 0 {
			return result, ErrEndedEarly
		}
		if err != nil {
			return result, fmt.Errorf("line %q: %w", text, err)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue // keeps an idle connection open
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return result, fmt.Errorf("line %q: %w", text, err)
		}
		switch {
		case l.Command != nil && l.Command.ExitCode != nil:
			result.ExitCode = *l.Command.ExitCode
			return result, nil
		case l.Stream == "error":
			return result, fmt.Errorf("%w: %s", ErrStreamError, l.Data)
		case l.Stream != "":
			var data string
			if err := json.Unmarshal(l.Data, &data); err != nil {
				return result, fmt.Errorf("line %q: %w", text, err)
			}
			if l.Stream == "stdout" {
				result.Stdout += data
			} else {
				result.Stderr += data
			}
		}
	}
}
