package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
)

func testApp() (*app, *bytes.Buffer, *bytes.Buffer) {
	var out, errOut bytes.Buffer
	return &app{in: strings.NewReader(""), out: &out, errOut: &errOut, getenv: func(string) string { return "" }}, &out, &errOut
}

func TestReport(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		code int
		want []string // on stderr
	}{
		{"none", context.Background(), nil, 0, nil},
		{"the command's own", context.Background(), fmt.Errorf("x: %w", exitCode(7)), 7, nil},
		{"interrupted", canceled, fmt.Errorf("x: %w", context.Canceled), 130, nil},
		{"broken pipe", context.Background(), fmt.Errorf("x: %w", syscall.EPIPE), 141, nil},
		{"with remedy", context.Background(), fail("a\nb", "do c"), 1, []string{"glovebox: a; b", "try: do c"}},
		{"refused", context.Background(), fmt.Errorf("dial: %w", syscall.ECONNREFUSED), 1, []string{"try: start the server there"}},
		{"token", context.Background(), api.Errorf(api.CodeUnauthorized, "no such token"), 1, []string{"no such token", "token create"}},
		{"advice at the end", context.Background(), errors.New("d is held; stop it"), 1, []string{"glovebox: d is held\n", "try: stop it"}},
		{"unknown verb", context.Background(), errors.New(`unknown command "x" for "glovebox"`), 2, []string{"glovebox --help"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, _, errOut := testApp()
			if code := a.report(c.ctx, c.err); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if len(c.want) == 0 && errOut.Len() > 0 {
				t.Errorf("printed %q", errOut)
			}
			for _, w := range c.want {
				if !strings.Contains(errOut.String(), w) {
					t.Errorf("%q is not in %q", w, errOut)
				}
			}
			if n := strings.Count(errOut.String(), "\n"); n > 2 {
				t.Errorf("%d lines: %q", n, errOut)
			}
		})
	}
}

func TestTableShowsControlCharacters(t *testing.T) {
	a, out, _ := testApp()
	a.table([]string{"A", "B"}, [][]string{{"x\033[31my", "1"}, {"é", "2"}})
	if strings.Contains(out.String(), "\033") {
		t.Errorf("an escape sequence passed: %q", out)
	}
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	if len(lines) != 3 || !strings.HasSuffix(lines[2], "2") {
		t.Errorf("table %q", lines)
	}
}

func TestProgressInLines(t *testing.T) {
	a, _, errOut := testApp()
	p := a.newProgress()
	p.update("packages", 0, 0)
	p.update("packages", 0, 0)
	for i := range int64(101) {
		p.update("download", i, 100)
	}
	p.done()
	got := errOut.String()
	if n := strings.Count(got, "\n"); n != 11 { // packages, download, 10 % … 90 %
		t.Errorf("%d lines:\n%s", n, got)
	}
	if strings.ContainsAny(got, "\r\033") {
		t.Errorf("control characters without a terminal: %q", got)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"run"}, {"exec", "x"}, {"nothing"}, {"ls", "x"}, {"ls", "--nope"}, {"cp", "a", "b"}, {"cp", "a:b", "c:d"}, {"image"}, {"image", "pull"}, {"token", "create"},
	} {
		a, _, errOut := testApp()
		root := a.rootCommand()
		root.SetArgs(args)
		if code := a.report(context.Background(), root.Execute()); code != exitUsage {
			t.Errorf("%v: exit code %d, want %d (%s)", args, code, exitUsage, errOut)
		}
	}
}

func TestDoctorExitsOnFatal(t *testing.T) {
	a, out, _ := testApp()
	checks := []check{
		func(context.Context) []finding { return ok("one", "fine") },
		func(context.Context) []finding { return warning("two", "slow", "do this") },
	}
	if err := a.doctor(context.Background(), checks); err != nil {
		t.Errorf("a warning is no failure: %v", err)
	}
	checks = append(checks,
		func(context.Context) []finding { return fatal("three", "broken", "do that") },
		func(context.Context) []finding { t.Error("the last check was asked in vain"); return nil })
	if err := a.doctor(context.Background(), checks); err == nil {
		t.Error("a fatal finding is a failure")
	}
	for _, w := range []string{"fine", "slow", "do this", "broken", "do that"} {
		if !strings.Contains(out.String(), w) {
			t.Errorf("%q is not in:\n%s", w, out)
		}
	}
}
