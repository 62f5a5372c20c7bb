package server_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"go.uber.org/goleak"

	"github.com/glovebox-dev/glovebox/internal/server"
	"github.com/glovebox-dev/glovebox/internal/server/fakecontrol"
)

var update = flag.Bool("update", false, "write the answers of testdata/wire anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newServer starts a server on a fake control plane.
func newServer(t testing.TB, change func(*server.Config)) (*httptest.Server, *fakecontrol.Control) {
	t.Helper()
	control := fakecontrol.New()
	cfg := server.Config{Control: control, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(s)
	t.Cleanup(func() {
		ts.CloseClientConnections()
		ts.Close()
		http.DefaultClient.CloseIdleConnections()
		control.Close()
	})
	return ts, control
}

// shownHeaders are the headers of an answer that the examples hold.
var shownHeaders = []string{"Allow", "Content-Length", "Content-Type", "Retry-After", "Www-Authenticate"}

// TestWire plays testdata/wire/*.txtar: requests in order to one fresh
// server, each followed by the answer to it.
func TestWire(t *testing.T) {
	files, err := filepath.Glob("testdata/wire/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { playWire(t, file) })
	}
}

func playWire(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ts, _ := newServer(t, nil)
	got := &txtar.Archive{Comment: archive.Comment}
	for _, f := range archive.Files {
		if f.Name != "request" {
			continue
		}
		got.Files = append(got.Files, f, txtar.File{Name: "answer", Data: []byte(ask(t, ts, string(f.Data)))})
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(txtar.Format(archive)), string(txtar.Format(got))); diff != "" {
		t.Errorf("%s (-want +got; -update writes it anew):\n%s", file, diff)
	}
}

// requestID is what differs from run to run.
var requestID = regexp.MustCompile(`req_[a-z0-9]+`)

// ask sends a request in its written form and writes the answer likewise.
func ask(t *testing.T, ts *httptest.Server, text string) string {
	t.Helper()
	head, body, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	method, path, _ := strings.Cut(lines[0], " ")
	req, err := http.NewRequestWithContext(t.Context(), method, ts.URL+path, strings.NewReader(strings.TrimSuffix(body, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "glovebox.test"
	req.Header.Set("Authorization", "Bearer "+fakecontrol.AlphaToken)
	for _, l := range lines[1:] {
		name, value, _ := strings.Cut(l, ": ")
		req.Header.Set(name, value)
	}
	if req.Header.Get("Authorization") == "none" {
		req.Header.Del("Authorization")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", lines[0], err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(bufio.NewReader(resp.Body))
	if err != nil {
		t.Fatalf("%s: %v", lines[0], err)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d\n", resp.StatusCode)
	for _, name := range shownHeaders {
		// The length of JSON is not worth reading, or changing, here.
		if v := resp.Header.Get(name); v != "" && !(name == "Content-Length" && slices.Contains(resp.Header["Content-Type"], "application/json")) {
			fmt.Fprintf(&out, "%s: %s\n", name, v)
		}
	}
	if len(answer) > 0 {
		fmt.Fprintf(&out, "\n%s\n", requestID.ReplaceAllString(strings.TrimSuffix(string(answer), "\n"), "req_ID"))
	}
	return out.String()
}
