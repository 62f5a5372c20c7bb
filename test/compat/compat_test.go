//go:build linux && !race

package compat

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/test/testserver"
)

const (
	suiteTimeout = 6 * time.Minute
	slowTimeout  = 12 * time.Minute
	// page is written from the results.
	page = "../../docs/compatibility/vercel.md"
	// width is how many suites run at once: most of them wait most of the time.
	width = 4
	// fdSlack is how many more descriptors an idle server may hold after the
	// suites than before them.
	fdSlack = 8
	// diskBytes of a sandbox: small enough to be filled in a test.
	diskBytes = 1 << 30
	// fdsPerMachine is what the server holds for one machine: the cable and
	// the stack's end of it, a process and its control socket, the disk.
	fdsPerMachine = 8
)

// first are the suites that sleep longest; alone those that take everything.
var (
	first = []string{"ports.test.mjs", "commands.test.mjs", "calls-cli.test.mjs", "calls-cliconfig.test.mjs", "cli.test.mjs", "files.test.mjs"}
	alone = []string{"limits.test.mjs", "concurrency.test.mjs"}
)

// outcome of one suite.
type outcome struct {
	output []byte
	err    error
	took   time.Duration
}

func TestPublishedClient(t *testing.T) {
	server := testserver.Start(t, "--disk", strconv.Itoa(diskBytes))
	ensureModules(t)
	env := append(os.Environ(),
		"GLOVEBOX_URL="+server.URL,
		"GLOVEBOX_TOKEN="+server.Token,
		"GLOVEBOX_BIN="+server.Bin,
		"GLOVEBOX_TEST_DISK_BYTES="+strconv.Itoa(diskBytes),
		"GLOVEBOX_DATA_DIR="+server.DataDir,
		"GLOVEBOX_TEST_IMAGE="+importTestImage(t, server),
	)
	before := usage(t, server)

	suites, err := filepath.Glob("*.test.mjs")
	if err != nil || len(suites) == 0 {
		t.Fatalf("no suites found: %v", err)
	}
	results := t.TempDir()
	side := slices.DeleteFunc(suites, func(s string) bool { return slices.Contains(alone, s) || slices.Contains(first, s) })
	report(t, append(slices.Clone(first), side...), env, results, width)
	report(t, alone, env, results, 1)

	if !t.Failed() { // what has failed is told already
		t.Run("the page says what was tested", func(t *testing.T) { checkPage(t, results) })
	}
	t.Run("nothing is left in the server", func(t *testing.T) { assertIdle(t, server, before) })
	t.Run("SIGTERM ends streams in form", func(t *testing.T) { assertStreamsEndInForm(t, server) })
}

// report runs suites, so many at once, shows each as a subtest, and leaves
// what they say of the client's calls in results.
func report(t *testing.T, suites, env []string, results string, width int) {
	t.Helper()
	outcomes := make([]chan outcome, len(suites))
	slots := make(chan struct{}, width)
	var running sync.WaitGroup
	for i, suite := range suites {
		outcomes[i] = make(chan outcome, 1)
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			outcomes[i] <- run(suite, env, results)
		})
	}
	for i, suite := range suites {
		t.Run(strings.TrimSuffix(suite, ".test.mjs"), func(t *testing.T) {
			result := <-outcomes[i]
			t.Logf("%s took %v", suite, result.took.Round(time.Second))
			if result.err != nil {
				t.Errorf("%s: %v\n%s", suite, result.err, result.output)
			}
		})
	}
	running.Wait()
}

// run executes one suite in a Node.js of its own, and all that it starts
// ends with it.
func run(suite string, env []string, results string) outcome {
	limit := suiteTimeout
	if os.Getenv("GLOVEBOX_SLOW") == "1" {
		limit = slowTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--import", "../../compat/vercel/register.mjs",
		"--test-reporter=spec", "--test-reporter-destination=stdout",
		"--test-reporter=./support/results.mjs", "--test-reporter-destination="+filepath.Join(results, filepath.Base(suite)), suite)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	start := time.Now()
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("not finished within %v: %w", limit, err)
	}
	return outcome{output, err, time.Since(start)}
}

// checkPage compares the page with what the suites have shown, or writes it
// where GLOVEBOX_WRITE_PAGE is set, as make compat does.
func checkPage(t *testing.T, results string) {
	args := []string{"support/page.mjs", results, page}
	if os.Getenv("GLOVEBOX_WRITE_PAGE") == "1" {
		args = append(args, "--write")
	}
	if out, err := exec.Command("node", args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// ensureModules installs the pinned packages where `make test` has not.
func ensureModules(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("node_modules/@vercel/sandbox/package.json"); err == nil {
		return
	}
	if out, err := exec.Command("npm", "ci").CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
}

// assertIdle: the suites removed what they made, and the server let go of it.
func assertIdle(t *testing.T, server *testserver.Server, before footprint) {
	var list struct {
		Sandboxes []struct{ Name, Status string }
	}
	server.Call(t, http.MethodGet, "/v2/sandboxes?limit=50", nil, &list)
	if len(list.Sandboxes) > 0 {
		t.Errorf("sandboxes are left: %v", list.Sandboxes)
	}
	var now footprint
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		now = usage(t, server)
		if now.files <= before.files+fdSlack+fdsPerMachine*(now.warm-before.warm) {
			return
		}
	}
	t.Errorf("the server holds %d descriptors with %d warm machines; before the suites %d with %d", now.files, now.warm, before.files, before.warm)
}

// footprint is what a server holds: descriptors, and the warm machines that
// account for some of them.
type footprint struct{ files, warm int }

func usage(t *testing.T, server *testserver.Server) footprint {
	t.Helper()
	var status struct {
		Pool []struct{ Ready, Starting int }
	}
	server.Call(t, http.MethodGet, "/v1/status", nil, &status)
	f := footprint{files: server.OpenFiles(t)}
	for _, p := range status.Pool {
		f.warm += p.Ready + p.Starting
	}
	return f
}

// assertStreamsEndInForm: a server that is told to end while commands are
// waited for ends their streams with whole lines: the command's end, an error
// line, or nothing more.
func assertStreamsEndInForm(t *testing.T, server *testserver.Server) {
	var made struct{ Session struct{ ID string } }
	server.Call(t, http.MethodPost, "/v3/sandboxes", map[string]any{"persistent": false}, &made)
	body := map[string]any{"command": "sh", "args": []string{"-c", "echo started; sleep 600"}, "wait": true, "logs": true}
	ends := make(chan error, 10)
	for range cap(ends) {
		answer := server.Send(t, http.MethodPost, "/v2/sandboxes/sessions/"+made.Session.ID+"/cmd", body)
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("status %d", answer.StatusCode)
		}
		go func() {
			defer answer.Body.Close()
			result, err := testserver.ReadStream(answer.Body)
			if err == nil && result.ExitCode == 0 {
				err = errors.New("the command is reported as successful")
			}
			ends <- err
		}()
	}
	server.Stop(t)
	for range cap(ends) {
		err := <-ends
		if err != nil && !errors.Is(err, testserver.ErrStreamError) && !errors.Is(err, testserver.ErrEndedEarly) {
			t.Errorf("a stream ended with %v", err)
		}
	}
}
