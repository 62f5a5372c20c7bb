package guest_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest"
)

const countSleeps = `grep -laP 'sleep\x00777' /proc/[0-9]*/cmdline 2>/dev/null | wc -l`

// waitSleeps waits until as many of the marked processes run.
func waitSleeps(t *testing.T, c *guest.Conn, want string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		r := shell(t, c, countSleeps)
		if strings.TrimSpace(r.out) == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q of the processes run, want %s", r.out, want)
		}
	}
}

func TestKillTree(t *testing.T) {
	_, c := assembled(t)
	id := begin(t, c, guest.Command{User: guest.User{UID: 1000, GID: 1000}, Argv: []string{"bash", "-c",
		"sleep 7771 & (sleep 7772 & wait) & setsid sleep 7773 & (setsid sh -c '(setsid sleep 7775 >/dev/null 2>&1 &) ; exit 0' &) ; sleep 7774; echo never"}})
	waitSleeps(t, c, "5")
	start := time.Now()
	if err := c.Signal(ctx(t), id, 9, true); err != nil {
		t.Fatal(err)
	}
	r := finish(t, c, id)
	if r.code != 137 || strings.Contains(r.out, "never") || time.Since(start) > 3*time.Second {
		t.Errorf("%+v after %s", r, time.Since(start))
	}
	if r := shell(t, c, countSleeps); r.out != "0\n" {
		t.Errorf("left: %s", r.out)
	}
}

// A tree is that of one command: not of its neighbours, nor of an earlier one
// that had the same control group.
func TestKillTreeSparesOthers(t *testing.T) {
	_, c := assembled(t)
	shell(t, c, "sleep 7771 & disown")
	waitSleeps(t, c, "1")
	keep := begin(t, c, guest.Command{Argv: []string{"sleep", "7772"}})
	id := begin(t, c, guest.Command{Argv: []string{"sleep", "7773"}})
	waitSleeps(t, c, "3")
	if err := c.Signal(ctx(t), id, 9, true); err != nil {
		t.Fatal(err)
	}
	if r := finish(t, c, id); r.code != 137 {
		t.Errorf("%+v", r)
	}
	waitSleeps(t, c, "2")
	if err := c.Signal(ctx(t), keep, 15, false); err != nil {
		t.Fatal(err)
	}
	if r := finish(t, c, keep); r.code != 143 {
		t.Errorf("%+v", r)
	}
}

func TestKillForkBomb(t *testing.T) {
	_, c := assembled(t)
	id := begin(t, c, guest.Command{Argv: []string{"bash", "-c", "ulimit -u 400; f() { sleep 7779 & f | f & }; f; wait; sleep 7778"}, User: guest.User{UID: 4711, GID: 4711}})
	waitFor := time.Now().Add(time.Second)
	for time.Now().Before(waitFor) {
		time.Sleep(50 * time.Millisecond)
	}
	if err := c.Signal(ctx(t), id, 9, true); err != nil && !errors.Is(err, guest.ErrFinished) {
		t.Fatal(err)
	}
	finish(t, c, id)
}

func TestSignalGroup(t *testing.T) {
	_, c := assembled(t)
	id := begin(t, c, guest.Command{Argv: []string{"bash", "-c", `trap 'echo caught; exit 3' USR1; echo ready; sleep 7771 & wait`}})
	waitSleeps(t, c, "1")
	if err := c.Signal(ctx(t), id, 0, false); err != nil {
		t.Errorf("signal 0: %v", err)
	}
	if err := c.Signal(ctx(t), id, 10, false); err != nil {
		t.Fatal(err)
	}
	if r := finish(t, c, id); r.code != 3 || r.out != "ready\ncaught\n" {
		t.Errorf("%+v", r)
	}
	waitSleeps(t, c, "0")
}

func TestSignalAfterEnd(t *testing.T) {
	_, c := assembled(t)
	id := begin(t, c, guest.Command{Argv: []string{"true"}})
	if r := finish(t, c, id); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	keep := begin(t, c, guest.Command{Argv: []string{"sleep", "7771"}})
	for _, tree := range []bool{true, false} {
		if err := c.Signal(ctx(t), id, 9, tree); !errors.Is(err, guest.ErrFinished) {
			t.Errorf("tree %v: %v", tree, err)
		}
	}
	if err := c.Signal(ctx(t), "unknown", 9, true); !errors.Is(err, guest.ErrNoCommand) {
		t.Errorf("unknown: %v", err)
	}
	waitSleeps(t, c, "1")
	if err := c.Signal(ctx(t), keep, 9, true); err != nil {
		t.Error(err)
	}
	finish(t, c, keep)
}

// Root in the sandbox does not end it by a signal to process 1.
func TestAgentSurvivesSignals(t *testing.T) {
	_, c := assembled(t)
	shell(t, c, "for s in HUP INT QUIT TERM USR1 USR2 PIPE ALRM CHLD URG WINCH CONT; do kill -$s 1; done")
	if r := shell(t, c, "echo alive"); r.out != "alive\n" {
		t.Errorf("%+v", r)
	}
}
