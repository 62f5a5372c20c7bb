package server_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/server/fakecontrol"
)

// At the end of the server streams end between lines, with the reason.
func TestShutdownEndsStreams(t *testing.T) {
	control := fakecontrol.New()
	url, shutdown := serve(t, control)
	ts := &httptest.Server{URL: url}
	session := newSession(t, ts)
	cmd := start(t, ts, session, `{"command":"say-and-sleep"}`)
	run := request(t, ts, "POST", session+"/cmd", strings.NewReader(`{"command":"sleep","wait":true}`))
	logs := request(t, ts, "GET", cmd+"/logs", nil)
	wait := request(t, ts, "GET", cmd+"?wait=true", nil)
	stdin := start(t, ts, session, `{"command":"cat","stdin":true}`)
	pr, pw := io.Pipe()
	defer pw.Close()
	fed := make(chan int)
	go func() { fed <- post(t, url+stdin+"/stdin", pr) }()
	if _, err := io.WriteString(pw, "x"); err != nil {
		t.Fatal(err)
	}
	readItem(t, bufio.NewReader(request(t, ts, "GET", stdin+"/logs", nil).Body)) // it arrived
	r := bufio.NewReader(logs.Body)
	readItem(t, r)
	if err := shutdown(); err != nil {
		t.Fatal(err)
	}
	if last, _ := readItem(t, r); !isShutdown(last) {
		t.Errorf("last item of the logs %+v", last)
	}
	r = bufio.NewReader(run.Body)
	readItem(t, r)
	if last, _ := readItem(t, r); !isShutdown(last) {
		t.Errorf("last item of the command %+v", last)
	}
	var out api.ErrorResponse
	if err := json.NewDecoder(wait.Body).Decode(&out); err != nil || out.Error.Code != api.CodeSandboxStopping {
		t.Errorf("wait: %+v, %v", out, err)
	}
	if status := <-fed; status != 422 {
		t.Errorf("stdin: status %d", status)
	}
	var d net.Dialer
	if conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://")); err == nil {
		conn.Close()
		t.Error("the server still listens")
	}
}

// post returns the status of the answer, -1 for none.
func post(t *testing.T, url string, body io.Reader) int {
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, body)
	if err != nil {
		t.Error(err)
		return -1
	}
	req.Header.Set("Authorization", "Bearer "+fakecontrol.AlphaToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return -1
	}
	resp.Body.Close()
	return resp.StatusCode
}

func isShutdown(i item) bool {
	var e api.Error
	return json.Unmarshal(i.Data, &e) == nil && i.Stream == api.StreamError && e.Code == api.CodeSandboxStopping
}

// A reader that takes nothing does not hold up the end.
func TestShutdownWithSlowReader(t *testing.T) {
	url, shutdown := serve(t, fakecontrol.New())
	ts := &httptest.Server{URL: url}
	session := newSession(t, ts)
	request(t, ts, "POST", session+"/cmd", strings.NewReader(`{"command":"flood","args":["50000000"],"wait":true,"logs":true}`))
	if err := shutdown(); err != nil {
		t.Fatal(err)
	}
}
