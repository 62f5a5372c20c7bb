package guest_test

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest"
)

func TestRun(t *testing.T) {
	_, c := assembled(t)
	r := run(t, c, guest.Command{Argv: []string{"echo", "a", "b  c"}})
	if r.out != "a b  c\n" || r.err != "" || r.code != 0 {
		t.Errorf("echo: %+v", r)
	}
	r = shell(t, c, "echo out; echo err >&2; exit 7")
	if r.out != "out\n" || r.err != "err\n" || r.code != 7 {
		t.Errorf("shell: %+v", r)
	}
}
