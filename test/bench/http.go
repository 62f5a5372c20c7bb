package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
)

// wire sends prepared requests over kept connections and looks at little of
// the answers: what is left of a call when the client costs nothing.
type wire struct {
	base, token string
	http        *http.Client
}

func (s *server) wire(sc *scope) wire {
	t := &http.Transport{DisableCompression: true}
	// Names below localhost are the server's previews.
	t.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, s.addr)
	}
	sc.onClose(func() error { t.CloseIdleConnections(); return nil })
	return wire{base: "http://" + s.addr, token: s.token, http: &http.Client{Transport: t}}
}

var jsonHeader = http.Header{"Content-Type": {"application/json"}}

func sessionPath(id, rest string) string { return "/v2/sandboxes/sessions/" + id + rest }

// do copies the answer to out. The target is a path of the API or a URL.
func (w wire) do(ctx context.Context, method, target string, header http.Header, body []byte, out io.Writer) error {
	if strings.HasPrefix(target, "/") {
		target = w.base + target
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Authorization", "Bearer "+w.token)
	resp, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // of an error that is reported anyway
		return fmt.Errorf("%s %s: %s: %s", method, target, resp.Status, text)
	}
	_, err = io.Copy(out, resp.Body)
	return err
}

// post sends JSON and returns the whole answer.
func (w wire) post(ctx context.Context, path string, body []byte) ([]byte, error) {
	var answer bytes.Buffer
	err := w.do(ctx, http.MethodPost, path, jsonHeader, body, &answer)
	return answer.Bytes(), err
}

// health is a request that does nothing.
func (w wire) health(ctx context.Context) error {
	return w.do(ctx, http.MethodGet, "/healthz", nil, nil, io.Discard)
}

// command runs one to its end in a session.
func (w wire) command(ctx context.Context, session string, body []byte) error {
	answer, err := w.post(ctx, sessionPath(session, "/cmd"), body)
	if err == nil && !bytes.Contains(answer, []byte(`"exitCode":0`)) {
		err = fmt.Errorf("unexpected answer: %s", answer)
	}
	return err
}

// commandBody is the request of a command whose output is streamed.
func commandBody(argv ...string) []byte {
	body, err := json.Marshal(map[string]any{"command": argv[0], "args": argv[1:], "wait": true, "logs": true})
	if err != nil {
		panic(err) // strings always encode
	}
	return body
}

// create makes a sandbox.
func (w wire) create(ctx context.Context) (session, name string, err error) {
	answer, err := w.post(ctx, "/v3/sandboxes", []byte(`{"persistent":false,"timeout":3600000}`))
	if err != nil {
		return "", "", err
	}
	var made struct {
		Sandbox struct{ Name string }
		Session struct{ ID string }
	}
	err = json.Unmarshal(answer, &made)
	return made.Session.ID, made.Sandbox.Name, err
}
