package vercel

import (
	"os/exec"
	"testing"
	"time"
)

// TestShim runs the tests of the shim itself, which need no server.
func TestShim(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("no Node.js: scripts/setup test installs it")
	}
	cmd := exec.CommandContext(t.Context(), "node", "--test")
	cmd.WaitDelay = 10 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
