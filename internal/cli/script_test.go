package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/test/testserver"
)

// TestScripts runs testdata/script, which reads like a manual. Each script
// has a project of its own on one server, whose data directory is
// $GLOVEBOX_DATA_DIR. $LOCAL is one of the script's own without a server,
// $URL and $TOKEN are for the way over HTTP. Beside testscript's own commands:
//
//	code N CMD…        CMD ends with exit code N
//	capture NAME       puts the last stdout into the variable NAME
//	until RE CMD…      repeats CMD until its stdout matches RE
func TestScripts(t *testing.T) {
	server := testserver.Start(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(server.Bin)+":"+os.Getenv("PATH"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GLOVEBOX_DATA_DIR", server.DataDir)
			env.Setenv("GLOVEBOX_PROJECT", strings.ReplaceAll(filepath.Base(env.WorkDir), ".", "_"))
			env.Setenv("LOCAL", seeded(t, filepath.Join(env.WorkDir, "local")))
			env.Setenv("URL", server.URL)
			env.Setenv("TOKEN", server.Token)
			env.Setenv("MODULES", filepath.Join(testserver.Root(t), "test/compat/node_modules"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":    code,
			"capture": capture,
			"until":   until,
		},
	})
}

// seeded makes a data directory that has images and nothing else.
func seeded(t *testing.T, dir string) string {
	t.Helper()
	store, err := image.Open(dir, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = store.Link(filepath.Join(testserver.Root(t), ".glovebox"))
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func code(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || neg {
		ts.Fatalf("usage: code N CMD [ARG…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func capture(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 || neg {
		ts.Fatalf("usage: capture NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// untilTimeout is long enough for a machine that is busy with other tests.
const untilTimeout = 30 * time.Second

func until(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || neg {
		ts.Fatalf("usage: until RE CMD [ARG…]")
	}
	re, err := regexp.Compile(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), untilTimeout)
	defer cancel()
	for {
		err := ts.Exec(args[1], args[2:]...)
		if re.MatchString(ts.ReadFile("stdout")) {
			return
		}
		select {
		case <-ctx.Done():
			ts.Fatalf("%s did not print %s within %v (%v)", fmt.Sprint(args[1:]), args[0], untilTimeout, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
