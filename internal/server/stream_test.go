package server_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
)

func TestStreamLinesComeOneByOne(t *testing.T) {
	ts, _ := newServer(t, nil)
	session := newSession(t, ts)
	resp := request(t, ts, "POST", session+"/cmd", strings.NewReader(`{"command":"say-and-sleep","wait":true,"logs":true}`))
	if got := resp.Header.Get("Content-Type"); got != "application/x-ndjson" {
		t.Errorf("content type %q", got)
	}
	r := bufio.NewReader(resp.Body)
	first, _ := readItem(t, r)
	if first.Command == nil || first.Command.ExitCode != nil {
		t.Fatalf("first item %+v, want a running command", first)
	}
	if second, _ := readItem(t, r); second.Stream != api.Stdout || second.text() != "ready\n" {
		t.Fatalf("second item %+v", second)
	}
	call(t, ts, "POST", session+"/cmd/"+first.Command.ID+"/kill", `{}`, 200, nil)
	last, _ := readItem(t, r)
	if last.Command == nil || last.Command.ExitCode == nil || *last.Command.ExitCode != 143 || last.Command.DurationMs == nil {
		t.Fatalf("last item %+v, want a command that ended with 143", last)
	}
	if more, ok := readItem(t, r); ok {
		t.Fatalf("%+v after the end", more)
	}
}

func TestStreamOfMuchOutput(t *testing.T) {
	const size = 3_000_001
	ts, _ := newServer(t, nil)
	session := newSession(t, ts)
	cmd := start(t, ts, session, `{"command":"flood","args":["`+strconv.Itoa(size)+`"]}`)
	var readers sync.WaitGroup
	for range 3 {
		resp := request(t, ts, "GET", cmd+"/logs", nil)
		readers.Go(func() {
			total := 0
			r := bufio.NewReader(resp.Body)
			for {
				i, ok := readItem(t, r)
				if !ok {
					break
				}
				text := i.text()
				if len(text) > 64<<10 {
					t.Errorf("an item of %d bytes", len(text))
				}
				total += len(text)
			}
			if total != size {
				t.Errorf("read %d bytes, want %d", total, size)
			}
		})
	}
	readers.Wait()
}

// A reader that does not read holds up neither the command nor others.
func TestSlowReader(t *testing.T) {
	ts, _ := newServer(t, nil)
	session := newSession(t, ts)
	slow := request(t, ts, "POST", session+"/cmd", strings.NewReader(`{"command":"flood","args":["20000000"],"wait":true,"logs":true}`))
	first, _ := readItem(t, bufio.NewReaderSize(slow.Body, 512))
	var out api.CommandResponse
	call(t, ts, "GET", session+"/cmd/"+first.Command.ID+"?wait=true", "", 200, &out)
	if *out.Command.ExitCode != 0 {
		t.Errorf("exit code %d", *out.Command.ExitCode)
	}
}

func TestDisconnectLeavesTheCommand(t *testing.T) {
	ts, _ := newServer(t, nil)
	session := newSession(t, ts)
	resp := request(t, ts, "POST", session+"/cmd", strings.NewReader(`{"command":"say-and-sleep","wait":true,"logs":true}`))
	first, _ := readItem(t, bufio.NewReader(resp.Body))
	resp.Body.Close()
	var out api.CommandResponse
	call(t, ts, "GET", session+"/cmd/"+first.Command.ID, "", 200, &out)
	if out.Command.ExitCode != nil {
		t.Fatal("the command ended with its client")
	}
	call(t, ts, "POST", session+"/cmd/"+first.Command.ID+"/kill", `{"signal":9}`, 200, &out)
	if *out.Command.ExitCode != 137 {
		t.Errorf("exit code %d", *out.Command.ExitCode)
	}
}

func TestWaitSendsHeadersFirst(t *testing.T) {
	ts, _ := newServer(t, nil)
	session := newSession(t, ts)
	cmd := start(t, ts, session, `{"command":"sleep"}`)
	resp := request(t, ts, "GET", cmd+"?wait=true", nil) // returns with the headers
	if resp.StatusCode != 200 {
		t.Fatalf("status %d", resp.StatusCode)
	}
	call(t, ts, "POST", cmd+"/kill", `{}`, 200, nil)
	var out api.CommandResponse
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	if *out.Command.ExitCode != 143 {
		t.Errorf("exit code %d", *out.Command.ExitCode)
	}
}

func TestReadFileLengths(t *testing.T) {
	ts, _ := newServer(t, nil)
	session := newSession(t, ts)
	for _, tt := range []struct {
		path   string
		length int64 // -1 is unknown
		bytes  int
		broken bool
	}{
		{"/grows", 200_000, 200_000, false},
		{"/proc/big", -1, 200_000, false},
		{"/proc/version", 9, 9, false},
		{"/broken", 400_000, 0, true},
		{"/shrinks", 400_000, 0, true},
	} {
		resp := request(t, ts, "POST", session+"/fs/read", strings.NewReader(`{"path":"`+tt.path+`"}`))
		data, err := io.ReadAll(resp.Body)
		if resp.ContentLength != tt.length {
			t.Errorf("%s: length %d, want %d", tt.path, resp.ContentLength, tt.length)
		}
		if (err != nil) != tt.broken {
			t.Errorf("%s: error %v, want one: %v", tt.path, err, tt.broken)
		}
		if !tt.broken && len(data) != tt.bytes {
			t.Errorf("%s: %d bytes, want %d", tt.path, len(data), tt.bytes)
		}
	}
}

// A big upload that is refused at its first byte still gets its answer.
func TestRefusedUploadIsAnswered(t *testing.T) {
	ts, _ := newServer(t, nil)
	session := newSession(t, ts)
	for range 3 {
		resp := request(t, ts, "POST", session+"/fs/write", io.LimitReader(zeros{}, 30<<20), "Content-Type: application/gzip")
		if resp.StatusCode != http.StatusBadRequest {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestStdin(t *testing.T) {
	ts, _ := newServer(t, nil)
	session := newSession(t, ts)
	cmd := start(t, ts, session, `{"command":"cat","stdin":true}`)
	pr, pw := io.Pipe()
	answered := make(chan *http.Response, 1)
	go func() { answered <- request(t, ts, "POST", cmd+"/stdin", pr) }()
	logs := request(t, ts, "GET", cmd+"/logs", nil)
	r := bufio.NewReader(logs.Body)
	for _, text := range []string{"one\n", "two ☕\n"} {
		if _, err := io.WriteString(pw, text); err != nil {
			t.Fatal(err)
		}
		if i, _ := readItem(t, r); i.text() != text {
			t.Fatalf("%q came back as %q", text, i.text())
		}
	}
	pw.Close()
	if resp := <-answered; resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if _, more := readItem(t, r); more {
		t.Error("the logs did not end with the command")
	}
}

// A command that ends before its input ends the call, though the client has
// nothing to send.
func TestStdinOfEndedCommand(t *testing.T) {
	ts, _ := newServer(t, nil)
	session := newSession(t, ts)
	cmd := start(t, ts, session, `{"command":"first-line","stdin":true}`)
	pr, pw := io.Pipe()
	defer pw.Close()
	go func() { _, _ = io.WriteString(pw, "line\n") }()
	resp := request(t, ts, "POST", cmd+"/stdin", pr)
	if resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// A client that is cut off leaves stdin open.
func TestStdinCutOff(t *testing.T) {
	ts, _ := newServer(t, nil)
	session := newSession(t, ts)
	cmd := start(t, ts, session, `{"command":"cat","stdin":true}`)
	req, err := http.NewRequestWithContext(t.Context(), "POST", ts.URL+cmd+"/stdin", io.MultiReader(strings.NewReader("a\n"), brokenReader{}))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer alpha-token")
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Fatalf("status %d for a broken body", resp.StatusCode)
	}
	resp := request(t, ts, "POST", cmd+"/stdin", strings.NewReader("b\n"))
	if resp.StatusCode != 200 {
		t.Fatalf("status %d", resp.StatusCode)
	}
	logs, err := io.ReadAll(request(t, ts, "GET", cmd+"/logs", nil).Body)
	if err != nil || !strings.Contains(string(logs), `"b\n"`) {
		t.Errorf("logs %s, %v", logs, err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("cut") }
