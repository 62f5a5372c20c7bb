package sentryhook

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// TestLease: a process goes on while one of its leases is held, and for a
// while after that; then it ends.
func TestLease(t *testing.T) {
	const childVar = "GLOVEBOX_TEST_LEASE"
	if os.Getenv(childVar) != "" {
		orphanTime = 100 * time.Millisecond
		Hold(os.NewFile(3, "lease"))
		Hold(os.NewFile(4, "lease"))
		_, _ = io.Copy(os.Stdout, os.Stdin) // answers while it lives
		select {}
	}
	var theirs, ours [2]*os.File
	for i := range theirs {
		var err error
		if theirs[i], ours[i], err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
		defer ours[i].Close()
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestLease$")
	cmd.Env = append(os.Environ(), childVar+"=1")
	cmd.ExtraFiles = theirs[:]
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill() //nolint:errcheck // it has ended
	theirs[0].Close()
	theirs[1].Close()
	ours[0].Close()                    // the other one is left
	time.Sleep(500 * time.Millisecond) // longer than orphanTime: that it does not end
	for i := range 3 {
		line := strconv.Itoa(i) + "\n"
		if _, err := io.WriteString(in, line); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(line))
		if _, err := io.ReadFull(out, got); err != nil || string(got) != line {
			t.Fatalf("with a lease it answers %q, %v", got, err)
		}
	}
	ours[1].Close()
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != exitOrphan {
		t.Errorf("without a lease it ends with %v", cmd.ProcessState)
	}
}
