package control

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

func TestTerminal(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	r.node.programs["shell"] = func(p *fakeProc) int {
		fmt.Fprintf(p.stdout(), "%d %d\n", p.TTY.Rows, p.TTY.Cols)
		in := bufio.NewScanner(p.in)
		for in.Scan() {
			if in.Text() == "exit" {
				return 42
			}
			fmt.Fprintln(p.stdout(), "got", in.Text())
		}
		<-p.killed
		return 0
	}
	term, err := r.OpenTerminal(ctx, id, api.TerminalStart{Command: "shell", Env: []string{"A=b=c"}, Cols: api.IntOf(100)})
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	out := bufio.NewReader(term)
	line := func(want string) {
		t.Helper()
		if got, err := out.ReadString('\n'); got != want+"\n" {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
	line("24 100")
	if err := term.Resize(ctx, 111, 33); err != nil {
		t.Fatal(err)
	}
	line("size 33 111")
	wantCode(t, term.Resize(ctx, 0, 5), api.CodeBadRequest, "cols")
	io.WriteString(term, "ü☕\n")
	line("got ü☕")
	io.WriteString(term, "exit\n")
	if _, err := out.ReadString('\n'); err != io.EOF {
		t.Error(err)
	}
	if code, err := term.Wait(ctx); code != 42 || err != nil {
		t.Error(code, err)
	}
	if _, err := term.Write([]byte("x")); err == nil {
		t.Error("typed after the end")
	}
	if list, _ := r.ListCommands(ctx, id); len(list) != 0 {
		t.Error("a terminal is listed as a command")
	}
	for part, start := range map[string]api.TerminalStart{
		"env":  {Env: []string{"novalue"}},
		"rows": {Rows: api.IntOf(0)},
		"cols": {Cols: api.IntOf(1 << 20)},
		"cwd":  {Cwd: "/none"},
	} {
		_, err := r.OpenTerminal(ctx, id, start)
		wantCode(t, err, api.CodeBadRequest, part)
	}
}

func TestTerminalHangsUp(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	open := func() *Terminal {
		term, err := r.OpenTerminal(t.Context(), id, api.TerminalStart{Command: "sleep", Args: []string{strings.Repeat("unread", 100_000)}})
		if err != nil {
			t.Fatal(err)
		}
		return term
	}
	term := open()
	term.Close()
	term.Close()
	if code, err := term.Wait(t.Context()); code != 129 || err != nil {
		t.Error(code, err)
	}
	// A session that ends takes its terminals along.
	term = open()
	if _, err := r.StopSession(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if code, err := term.Wait(t.Context()); code != 137 || err != nil {
		t.Error(code, err)
	}
	term.Close()
}

func TestInteractiveToken(t *testing.T) {
	r := newRig(t)
	id := r.create(t, api.CreateSandboxRequest{}).Session.ID
	token, err := r.NewInteractive(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	project, session, err := r.c.RedeemInteractive(t.Context(), token)
	if err != nil || project != "p" || session != id {
		t.Error(project, session, err)
	}
	_, _, err = r.c.RedeemInteractive(t.Context(), token)
	wantCode(t, err, api.CodeUnauthorized)
	token, err = r.NewInteractive(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	r.clock.advance(time.Minute)
	_, _, err = r.c.RedeemInteractive(t.Context(), token)
	wantCode(t, err, api.CodeUnauthorized)
}
