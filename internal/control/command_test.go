package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/guest"
)

func TestCommandOutputAndExit(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	cmd := r.run(t, id, "both")
	if cmd.Name != "both" || cmd.Args == nil || cmd.Cwd != "/vercel/sandbox" || cmd.SessionID != id || cmd.StartedAt != r.clock.Now().UnixMilli() {
		t.Errorf("%+v", cmd)
	}
	for range 2 { // while it is live, and from its record
		out, errs, code := r.output(t, cmd)
		if out != "out1 out2" || errs != "err1 " || code != 3 {
			t.Errorf("%q, %q, %d", out, errs, code)
		}
	}
	for argv, want := range map[string]int{"true": 0, "exit 5": 5, "exit 300": 255, "none": 127} {
		_, errs, code := r.output(t, r.run(t, id, strings.Fields(argv)...))
		if code != want || want == 127 && !strings.Contains(errs, "none") {
			t.Errorf("%s: %d, %q", argv, code, errs)
		}
	}
	list, err := r.ListCommands(t.Context(), id)
	if err != nil || len(list) != 5 || list[0].ID != cmd.ID || list[0].DurationMs == nil {
		t.Errorf("list %+v, %v", list, err)
	}
	if out, errs, _ := r.output(t, r.run(t, id, "true")); out != "" || errs != "" {
		t.Errorf("silent command: %q, %q", out, errs)
	}
}

func TestCommandEnvironment(t *testing.T) {
	r := newRig(t)
	values := map[string]string{"A": "it's", "B": `say "hi"`, "C": "$(touch /tmp/pwn) `x` $HOME", "D": "line1\nline2\n", "E": "", "G": "a=b=c", "NAME WITH SPACE": "☕"}
	create := map[string]string{"FOO": "create", "BAR": "create"}
	for k, v := range values {
		create[k] = v
	}
	id := r.create(t, api.CreateSandboxRequest{Env: create}).Session.ID
	env := func(req api.RunCommandRequest) map[string]string {
		req.Command = "env"
		cmd, err := r.RunCommand(t.Context(), id, req, "")
		if err != nil {
			t.Fatal(err)
		}
		r.output(t, cmd)
		m := r.node.last()
		m.mu.Lock()
		defer m.mu.Unlock()
		out := map[string]string{}
		for _, kv := range m.procs[cmd.ID].Env {
			k, v, _ := strings.Cut(kv, "=")
			out[k] = v
		}
		return out
	}
	check := func(got map[string]string, want map[string]string) {
		t.Helper()
		for k, v := range want {
			if g, ok := got[k]; !ok || g != v {
				t.Errorf("%s = %q, %v; want %q", k, g, ok, v)
			}
		}
	}
	check(env(api.RunCommandRequest{}), values)
	check(env(api.RunCommandRequest{}), map[string]string{"PATH": "/opt/bin:/bin", "FOO": "create", "HOME": "/home/user", "USER": "user", "LOGNAME": "user"})
	check(env(api.RunCommandRequest{Env: map[string]string{"FOO": "cmd"}}), map[string]string{"FOO": "cmd", "BAR": "create"})
	check(env(api.RunCommandRequest{Sudo: true}), map[string]string{"HOME": "/root", "USER": "root", "PATH": "/opt/bin:/bin", "FOO": "create"})
	check(env(api.RunCommandRequest{Sudo: true, Env: map[string]string{"HOME": "/x"}}), map[string]string{"HOME": "/x"})
	check(env(api.RunCommandRequest{Env: values}), values)
	// What the machine adds stands under what the user says.
	rules := api.NetworkPolicy{Allow: &api.AllowList{{Domain: "a.test", Rules: []api.PolicyRule{{Transform: []api.RuleTransform{}}}}}}
	if _, err := r.SetNetworkPolicy(t.Context(), id, rules); err != nil {
		t.Fatal(err)
	}
	check(env(api.RunCommandRequest{Env: map[string]string{"PIP_CERT": "/mine"}}), map[string]string{"SSL_CERT_FILE": "/bundle", "PIP_CERT": "/mine", "FOO": "create"})
}

func TestCommandUserAndDirectory(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	if err := r.Mkdir(t.Context(), id, "sub", ""); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cwd  string
		sudo bool
		want string
	}{
		{"", false, "1000 1001 [1001 7] /vercel/sandbox"},
		{"", true, "0 0 [0] /vercel/sandbox"},
		{"sub", false, "1000 1001 [1001 7] /vercel/sandbox/sub"},
		{"./sub", false, "1000 1001 [1001 7] /vercel/sandbox/sub"},
		{".", false, "1000 1001 [1001 7] /vercel/sandbox"},
		{"/tmp", false, "1000 1001 [1001 7] /tmp"},
	} {
		cmd, err := r.RunCommand(t.Context(), id, api.RunCommandRequest{Command: "id", Cwd: c.cwd, Sudo: c.sudo}, "")
		if err != nil {
			t.Fatal(err)
		}
		if out, _, _ := r.output(t, cmd); out != c.want+"\n" || !strings.HasSuffix(c.want, " "+cmd.Cwd) {
			t.Errorf("%+v: %q, cwd %s", c, out, cmd.Cwd)
		}
	}
	before, _ := r.ListCommands(t.Context(), id)
	_, err := r.RunCommand(t.Context(), id, api.RunCommandRequest{Command: "id", Cwd: "/none"}, "k")
	wantCode(t, err, api.CodeBadRequest, "cwd", "/none")
	after, _ := r.ListCommands(t.Context(), id)
	if len(after) != len(before) {
		t.Error("a command that did not run is listed")
	}
	if entries, _ := os.ReadDir(r.c.sessionDir(id)); len(entries) != len(after) {
		t.Errorf("%d logs of %d commands", len(entries), len(after))
	}
}

func TestCommandBadFields(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	for body, part := range map[string]string{
		`{}`:                                      "command",
		`{"command":""}`:                          "command",
		`{"command":7}`:                           "command",
		`{"command":"a\u0000"}`:                   "command",
		`{"command":"a","args":["\u0000"]}`:       "args",
		`{"command":"a","args":"x"}`:              "args",
		`{"command":"a","timeout":0}`:             "timeout",
		`{"command":"a","timeout":-1}`:            "timeout",
		`{"command":"a","timeout":1.5}`:           "timeout",
		`{"command":"a","timeout":99}`:            "timeout",
		`{"command":"a","timeout":null}`:          "timeout",
		`{"command":"a","env":{"":""}}`:           "env",
		`{"command":"a","env":{"a":"x\u0000"}}`:   "env",
		`{"command":"a","env":{"a":null,"=":""}}`: "env",
	} {
		var req api.RunCommandRequest
		err := api.Unmarshal([]byte(body), &req)
		if err == nil {
			_, err = r.RunCommand(t.Context(), id, req, "")
		}
		t.Run(body, func(t *testing.T) { wantCode(t, err, api.CodeBadRequest, part) })
	}
	_, err := r.RunCommand(t.Context(), "se_none", api.RunCommandRequest{}, "")
	wantCode(t, err, api.CodeNotFound)
}

func TestCommandTimeout(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	start := func(ms int64) *api.Command {
		cmd, err := r.RunCommand(t.Context(), id, api.RunCommandRequest{Command: "sleep", Args: []string{"before"}, Timeout: api.IntOf(ms)}, "")
		if err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	short, long := start(2000), start(1_000_000_000_000)
	r.clock.advance(1999 * time.Millisecond)
	if c, _ := r.GetCommand(t.Context(), id, short.ID); c.ExitCode != nil {
		t.Error("ended early")
	}
	r.clock.advance(time.Millisecond)
	if out, _, code := r.output(t, short); out != "before" || code != 137 {
		t.Errorf("%q, %d", out, code)
	}
	if c, _ := r.GetCommand(t.Context(), id, short.ID); *c.DurationMs != 2000 {
		t.Errorf("duration %d", *c.DurationMs)
	}
	m := r.node.last()
	m.mu.Lock()
	if p := m.procs[short.ID]; !p.tree {
		t.Error("descendants were spared")
	}
	m.mu.Unlock()
	r.clock.advance(time.Minute)
	if c, _ := r.GetCommand(t.Context(), id, long.ID); c.ExitCode != nil {
		t.Error("a time-out of 31 years ended")
	}
}

func TestCommandKill(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	for _, c := range []struct {
		signal api.Int
		code   int
		tree   bool
	}{{api.Int{}, 143, false}, {api.IntOf(9), 137, true}, {api.IntOf(2), 130, false}} {
		cmd := r.run(t, id, "sleep", "x")
		if got, err := r.KillCommand(t.Context(), id, cmd.ID, api.IntOf(0)); err != nil || got.ExitCode != nil {
			t.Errorf("signal 0: %+v, %v", got, err)
		}
		if _, err := r.KillCommand(t.Context(), id, cmd.ID, c.signal); err != nil {
			t.Fatal(err)
		}
		if _, _, code := r.output(t, cmd); code != c.code {
			t.Errorf("code %d, want %d", code, c.code)
		}
		m := r.node.last()
		m.mu.Lock()
		if m.procs[cmd.ID].tree != c.tree {
			t.Errorf("signal %+v: tree %v", c.signal, !c.tree)
		}
		m.mu.Unlock()
		for range 3 {
			got, err := r.KillCommand(t.Context(), id, cmd.ID, api.IntOf(9))
			if err != nil || got.ExitCode == nil || *got.ExitCode != c.code {
				t.Errorf("kill after the end: %+v, %v", got, err)
			}
		}
	}
	cmd := r.run(t, id, "sleep", "x")
	for _, s := range []int64{-1, 65} {
		_, err := r.KillCommand(t.Context(), id, cmd.ID, api.IntOf(s))
		wantCode(t, err, api.CodeBadRequest, "signal")
	}
	_, err := r.KillCommand(t.Context(), id, "cmd_none", api.Int{})
	wantCode(t, err, api.CodeNotFound, "cmd_none")
}

func TestCommandIdempotent(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := r.RunCommand(t.Context(), id, api.RunCommandRequest{Command: "true"}, "k"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if list, _ := r.ListCommands(t.Context(), id); len(list) != 1 {
		t.Errorf("%d commands", len(list))
	}
	_, err := r.RunCommand(t.Context(), id, api.RunCommandRequest{Command: "false"}, "k")
	wantCode(t, err, api.CodeBadRequest, "Idempotency-Key")
}

func TestCommandClientGoesAway(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	ctx, cancel := context.WithCancel(t.Context())
	cmd, err := r.RunCommand(ctx, id, api.RunCommandRequest{Command: "sleep", Args: []string{"x"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := r.WaitCommand(ctx, id, cmd.ID); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if c, err := r.GetCommand(t.Context(), id, cmd.ID); err != nil || c.ExitCode != nil {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestCommandStdin(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	cmd, err := r.RunCommand(t.Context(), id, api.RunCommandRequest{Command: "cat", Stdin: true}, "")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("typed ☕\n", 20_000)
	if err := r.WriteStdin(t.Context(), id, cmd.ID, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if out, _, code := r.output(t, cmd); out != text || code != 0 {
		t.Errorf("%d bytes, %d", len(out), code)
	}
	if err := r.WriteStdin(t.Context(), id, cmd.ID, strings.NewReader("late")); err != nil {
		t.Error("after the end:", err)
	}
	cmd = r.run(t, id, "sleep", "x")
	wantCode(t, r.WriteStdin(t.Context(), id, cmd.ID, strings.NewReader("")), api.CodeBadRequest, "stdin")
	wantCode(t, r.WriteStdin(t.Context(), id, "cmd_none", strings.NewReader("")), api.CodeNotFound)
}

func TestCommandThatCannotBeStartedRunsOnce(t *testing.T) {
	r := newRig(t)
	starts := 0
	r.node.onStart = func(_ context.Context, m *fakeMachine) error {
		m.startErr = func(guest.Command) error { starts++; return errors.New("deadline exceeded") }
		return nil
	}
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	cmd := r.run(t, id, "true")
	if _, errs, code := r.output(t, cmd); code != 137 || !strings.Contains(errs, "could not be started") || starts != 2 {
		t.Errorf("%d, %q, %d starts", code, errs, starts)
	}
}

func TestCommandOutputIsInterrupted(t *testing.T) {
	r := newRig(t)
	var mu sync.Mutex
	broken := 3
	r.node.onStart = func(_ context.Context, m *fakeMachine) error {
		m.attachErr = func() error {
			mu.Lock()
			defer mu.Unlock()
			if broken--; broken >= 0 {
				return errors.New("connection reset")
			}
			return nil
		}
		return nil
	}
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	cmd := r.run(t, id, "both")
	for range 3 {
		r.clock.blockUntil(2) // the session's, and the wait for another try
		r.clock.advance(time.Second)
	}
	if out, errs, code := r.output(t, cmd); out != "out1 out2" || errs != "err1 " || code != 3 {
		t.Errorf("%q, %q, %d", out, errs, code)
	}
}

func TestManyCommandsAndReaders(t *testing.T) {
	r := newRig(t)
	release := make(chan struct{})
	r.node.programs["lines"] = func(p *fakeProc) int {
		for i := range 200 {
			if i == 100 {
				<-release
			}
			fmt.Fprintf(p.stdout(), "%s-%d\n", p.Argv[1], i)
		}
		return 7
	}
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	want := func(k int) string {
		var b strings.Builder
		for i := range 200 {
			fmt.Fprintf(&b, "cmd%d-%d\n", k, i)
		}
		return b.String()
	}
	var wg sync.WaitGroup
	var stuckReaders []*LogReader
	for k := range 30 {
		cmd := r.run(t, id, "lines", fmt.Sprint("cmd", k))
		stuck, err := r.CommandLogs(t.Context(), id, cmd.ID) // reads nothing, holds up nobody
		if err != nil {
			t.Fatal(err)
		}
		stuckReaders = append(stuckReaders, stuck)
		for range 3 {
			wg.Go(func() {
				if out, _, code := r.output(t, cmd); out != want(k) || code != 7 {
					t.Errorf("command %d: %d bytes, code %d", k, len(out), code)
				}
			})
		}
	}
	close(release)
	wg.Wait()
	for k, l := range stuckReaders {
		if out, _ := drain(t, l); out != want(k) {
			t.Errorf("the reader of command %d that waited: %d bytes", k, len(out))
		}
		l.Close()
	}
}

func TestLogReaderCloseEndsNext(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	cmd := r.run(t, id, "sleep", "x")
	l, err := r.CommandLogs(t.Context(), id, cmd.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, data, err := l.Next(t.Context()); data != "x" || err != nil {
		t.Fatal(data, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	done := make(chan error)
	go func() { _, _, err := l.Next(t.Context()); done <- err }()
	l.Close()
	if err := <-done; err == nil || errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// A guest that cannot kill is asked again, and ended if it never can.
func TestCommandTimeoutIsRepeated(t *testing.T) {
	for _, failures := range []int64{3, math.MaxInt64} {
		r := newRig(t)
		id := r.create(t, api.CreateSandboxRequest{Persistent: new(bool)}).Session.ID
		left := failures
		r.node.last().signalErr = func() error {
			if left--; left >= 0 {
				return errors.New("the sandbox did not answer")
			}
			return nil
		}
		cmd, err := r.RunCommand(t.Context(), id, api.RunCommandRequest{Command: "sleep", Args: []string{"before"}, Timeout: api.IntOf(2000)}, "")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.clock.advance(2 * time.Second)
		}()
		for waiting := true; waiting; time.Sleep(time.Millisecond) {
			select {
			case <-done:
				waiting = false
			default:
				r.clock.advance(retryFirst)
			}
		}
		if _, _, code := r.output(t, cmd); code != 137 {
			t.Errorf("after %d failures: exit code %d", failures, code)
		}
		if failures == math.MaxInt64 {
			got, err := r.StopSession(t.Context(), id)
			if err != nil || got.Session.Status == api.StatusRunning {
				t.Errorf("the session goes on: %+v, %v", got, err)
			}
		}
	}
}
