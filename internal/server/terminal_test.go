package server_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/server/fakecontrol"
)

// connect opens a terminal's WebSocket and sends the first message.
func connect(t *testing.T, ts *httptest.Server, session, first string) *websocket.Conn {
	t.Helper()
	var where api.InteractiveResponse
	call(t, ts, "POST", session+"/interactive", `{}`, 200, &where)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	conn, _, err := websocket.Dial(ctx, where.URL+"?token="+where.Token, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.CloseNow() })
	conn.SetReadLimit(1 << 20)
	if err := conn.Write(ctx, websocket.MessageText, []byte(first)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := websocket.Dial(ctx, where.URL+"?token="+where.Token, nil); err == nil {
		t.Error("the token worked twice")
	}
	return conn
}

// until reads binary messages until the text that they hold contains want.
func until(t *testing.T, conn *websocket.Conn, want string) string {
	t.Helper()
	var seen strings.Builder
	for !strings.Contains(seen.String(), want) {
		kind, message, err := conn.Read(t.Context())
		if err != nil || kind != websocket.MessageBinary {
			t.Fatalf("%v message %q, error %v; want %q after %q", kind, message, err, want, seen.String())
		}
		seen.Write(message)
	}
	return seen.String()
}

func write(t *testing.T, conn *websocket.Conn, kind websocket.MessageType, text string) {
	t.Helper()
	if err := conn.Write(t.Context(), kind, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

const startShell = `{"type":"start","command":"sh","args":["-l"],"env":["A=b"],"cwd":"/","cols":100,"rows":30}`

func TestTerminal(t *testing.T) {
	ts, control := newServer(t, nil)
	conn := connect(t, ts, newSession(t, ts), startShell)
	until(t, conn, "sh -l A=b 100x30\r\n")
	write(t, conn, websocket.MessageBinary, "hello ☕\n")
	until(t, conn, "hello ☕\r\n")
	write(t, conn, websocket.MessageText, `{"type":"resize","cols":50,"rows":20}`)
	until(t, conn, "size 50x20\r\n")
	for _, ignored := range []string{`{"type":"resize","cols":0,"rows":-1}`, `{"type":"new"}`, `not json`, `{"type":"resize","cols":1e9,"rows":1}`} {
		write(t, conn, websocket.MessageText, ignored)
	}
	write(t, conn, websocket.MessageBinary, "flood 3000000\n")
	if seen := until(t, conn, "y\r\n"); strings.Count(seen, "y") != 3_000_000 {
		t.Errorf("%d of 3000000 bytes came", strings.Count(seen, "y"))
	}
	write(t, conn, websocket.MessageBinary, "exit 7\n")
	kind, message, err := conn.Read(t.Context())
	if err != nil || kind != websocket.MessageText || string(message) != `{"type":"exit","code":7}` {
		t.Fatalf("%v %s %v", kind, message, err)
	}
	if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("closed with %v", err)
	}
	if control.Calls("HangUp") != 0 {
		t.Error("a shell that exited was hung up")
	}
}

func TestTerminalDisconnectHangsUp(t *testing.T) {
	ts, control := newServer(t, nil)
	conn := connect(t, ts, newSession(t, ts), startShell)
	until(t, conn, "100x30")
	conn.CloseNow()
	for end := time.Now().Add(deadline); control.Calls("HangUp") == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the shell lives on")
		}
	}
}

func TestTerminalRefusals(t *testing.T) {
	ts, control := newServer(t, nil)
	session := newSession(t, ts)
	for first, want := range map[string]string{
		`{"type":"start","command":"sh","cwd":"/missing"}`: "does not exist",
		`{"type":"go"}`:               "must be",
		`{"type":"start","cols":"x"}`: "field cols",
		`nonsense`:                    "JSON",
	} {
		conn := connect(t, ts, session, first)
		until(t, conn, want)
		var exit struct {
			Type  string
			Code  int
			Error api.Error
		}
		_, message, err := conn.Read(t.Context())
		if err != nil || json.Unmarshal(message, &exit) != nil || exit.Type != "exit" || exit.Code != 1 || exit.Error.Code != api.CodeBadRequest {
			t.Errorf("%s: %s %v", first, message, err)
		}
	}
	if control.Calls("OpenTerminal") != 0 {
		t.Error("a terminal was opened")
	}
}

func TestShutdownClosesTerminals(t *testing.T) {
	control := fakecontrol.New()
	url, shutdown := serve(t, control)
	ts := &httptest.Server{URL: url}
	session := newSession(t, ts)
	conn := connect(t, ts, session, startShell)
	until(t, conn, "100x30")
	closed := make(chan error, 1)
	go func() {
		_, _, err := conn.Read(t.Context())
		closed <- err
	}()
	if err := shutdown(); err != nil {
		t.Fatal(err)
	}
	if err := <-closed; websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("closed with %v", err)
	}
	if control.Calls("HangUp") != 1 {
		t.Error("the shell was not hung up")
	}
}
