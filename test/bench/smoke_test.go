//go:build linux && !race

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/test/testserver"
)

// The test binary is what serves an outside, as the bench is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == outsideCommand {
		if err := serveOutside(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// smokeOptions measure little, beside those peers that are on this machine.
func smokeOptions(t *testing.T, only string) options {
	t.Helper()
	root := testserver.Root(t)
	o := options{
		bin: testserver.Binary(t), data: filepath.Join(root, ".glovebox"), runsc: filepath.Join(root, "bin/runsc"),
		tmp: t.TempDir(), n: 1, only: regexp.MustCompile(only), asJSON: true,
	}
	if _, err := os.Stat(o.runsc); err != nil {
		o.runsc = "" // make bench builds it
	}
	return o
}

// assertNothingLeft looks for what a run makes outside of Glovebox.
func assertNothingLeft(t *testing.T, o options) {
	t.Helper()
	entries, err := os.ReadDir(o.tmp)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("left: %s", e.Name())
	}
	for _, p := range allProcesses() {
		if strings.Contains(p.line, o.tmp) {
			t.Errorf("left: process %d: %s", p.pid, p.line)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), o.tmp) {
		t.Errorf("left a mount:\n%s", mounts)
	}
}

func TestSmoke(t *testing.T) {
	o := smokeOptions(t, "^(create|oneshot|exec|write|read|memory|preview|connect|state)$")
	before := testserver.Measure(t, o.bin, o.tmp)
	var out strings.Builder
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	var rep report
	if err := json.Unmarshal([]byte(out.String()), &rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.Results) != 9 {
		t.Errorf("%d results, want 9", len(rep.Results))
	}
	for _, r := range rep.Results {
		for _, row := range r.Rows {
			t.Logf("%s: %s: %.1f %s", r.Name, row.Name, row.P50, r.Unit)
			if row.N < 1 || row.P50 <= 0 && !strings.HasPrefix(row.Name, " ") {
				t.Errorf("%s: %s was not measured: %+v", r.Name, row.Name, row)
			}
		}
	}
	assertNothingLeft(t, o)
	before.AssertSame(t, o.bin, o.tmp)
}

// cancelling is a writer that cancels once a text has been written to it.
type cancelling struct {
	text   string
	cancel context.CancelFunc
	said   strings.Builder
}

func (c *cancelling) Write(b []byte) (int, error) {
	c.said.Write(b)
	if strings.Contains(c.said.String(), c.text) {
		c.cancel()
	}
	return len(b), nil
}

// TestInterrupted: as by Ctrl-C, in the middle.
func TestInterrupted(t *testing.T) {
	o := smokeOptions(t, "^(exec|python)$")
	o.asJSON = false
	before := testserver.Measure(t, o.bin, o.tmp)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := run(ctx, o, &cancelling{text: "in an open sandbox", cancel: cancel})
	if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "level=") {
		t.Errorf("run answered %v, want that it was cancelled, and no log", err)
	}
	assertNothingLeft(t, o)
	before.AssertSame(t, o.bin, o.tmp)
}
