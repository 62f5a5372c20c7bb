//go:build linux && !race

package endurance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
	"github.com/glovebox-dev/glovebox/test/testserver"
)

const (
	// ticks writes a line each 20 ms, in pieces, to both streams, and ends
	// with 7 once the file go exists.
	ticks = `i=0; while [ ! -e go ]; do i=$((i+1)); printf "tick "; printf "%d\n" $i; echo "err $i" >&2; sleep 0.02; done; exit 7`
	// web is a server inside that answers with the number of its requests.
	web = `
import http.server
class H(http.server.BaseHTTPRequestHandler):
    n = 0
    def do_GET(self):
        H.n += 1
        self.send_response(200); self.end_headers(); self.wfile.write(b"%d" % H.n)
    def log_message(self, *a): pass
http.server.HTTPServer(("127.0.0.1", 3000), H).serve_forever()
`
)

// guest is a sandbox of a server that will be killed, and what runs in it.
type guest struct {
	*client.Sandbox
	server *testserver.Server
	ticks  *client.Command
	asked  int // answers that web has given
}

// TestKilledServer: a server that is killed, again and again, takes nothing
// with it. The sandboxes are the next one's, with their commands, their output
// from the first byte on and once, their servers, files and time-outs.
func TestKilledServer(t *testing.T) {
	server := testserver.Start(t, "--leave-running")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c, err := client.New(server.URL, server.Token)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	var guests []*guest
	for range 3 {
		g := &guest{server: server}
		if g.Sandbox, err = c.CreateSandbox(ctx, api.CreateSandboxRequest{Ports: []api.Int{api.IntOf(3000)}}); err != nil {
			t.Fatal(err)
		}
		if _, err := g.StartCommand(ctx, client.Cmd{Name: "python3", Args: []string{"-c", web}}); err != nil {
			t.Fatal(err)
		}
		if g.ticks, err = g.StartCommand(ctx, client.Cmd{Name: "sh", Args: []string{"-c", ticks}}); err != nil {
			t.Fatal(err)
		}
		g.askWeb(ctx, t)
		guests = append(guests, g)
	}
	timed, err := guests[0].StartCommand(ctx, client.Cmd{Name: "sleep", Args: []string{"600"}, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 4 {
		if round == 3 { // the last one lets them go
			server.Restart(t)
		} else {
			server.KillAndRestart(t)
		}
		for _, g := range guests {
			g.askWeb(ctx, t)
			script := fmt.Sprintf("echo %d >> rounds; wc -l < rounds", round)
			if got := g.sh(ctx, t, script); got != fmt.Sprintln(round+1) {
				t.Errorf("round %d: %q", round, got)
			}
		}
	}
	if err := timed.Wait(ctx); err != nil || timed.ExitCode() != 137 {
		t.Errorf("a command with a time-out: %d, %v", timed.ExitCode(), err)
	}
	for _, g := range guests {
		g.sh(ctx, t, "touch go")
		g.checkTicks(ctx, t)
		if err := g.Delete(ctx); err != nil {
			t.Error(err)
		}
	}
}

func (g *guest) sh(ctx context.Context, t *testing.T, script string) string {
	t.Helper()
	var out bytes.Buffer
	if _, err := g.RunCommand(ctx, client.Cmd{Name: "sh", Args: []string{"-c", script}, Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// askWeb gets the next number, from the same process as ever. It waits until
// that listens.
func (g *guest) askWeb(ctx context.Context, t *testing.T) {
	t.Helper()
	preview, err := g.Domain(3000)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(preview)
	if err != nil {
		t.Fatal(err)
	}
	for g.asked++; ; time.Sleep(50 * time.Millisecond) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = at.Host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusBadGateway && g.asked == 1 {
			continue // it does not listen yet
		}
		if err != nil || resp.StatusCode != http.StatusOK || string(body) != fmt.Sprint(g.asked) {
			t.Errorf("request %d: status %d, %q, %v", g.asked, resp.StatusCode, body, err)
		}
		return
	}
}

// checkTicks waits for the end and looks at every line.
func (g *guest) checkTicks(ctx context.Context, t *testing.T) {
	t.Helper()
	var got = map[string]*strings.Builder{api.Stdout: {}, api.Stderr: {}}
	for line, err := range g.ticks.Logs(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		got[line.Stream].WriteString(line.Data)
	}
	if err := g.ticks.Wait(ctx); err != nil || g.ticks.ExitCode() != 7 {
		t.Errorf("ticks: exit code %d, %v", g.ticks.ExitCode(), err)
	}
	for stream, word := range map[string]string{api.Stdout: "tick", api.Stderr: "err"} {
		lines := strings.Split(strings.TrimSuffix(got[stream].String(), "\n"), "\n")
		for i, line := range lines {
			if want := fmt.Sprintf("%s %d", word, i+1); line != want {
				t.Fatalf("%s: line %d of %d is %q, want %q", stream, i+1, len(lines), line, want)
			}
		}
	}
}
