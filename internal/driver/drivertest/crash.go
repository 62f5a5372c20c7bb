package drivertest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// crashVar tells a test binary to be a server, in the data directory that it
// names, that starts machines and is then killed.
const crashVar = "GLOVEBOX_DRIVERTEST_CRASH"

const crashReady = "machines run"

func (s Suite) crash(t *testing.T, dir string) {
	agent, err := os.ReadFile(dir + "/agent")
	if err != nil {
		t.Fatal(err)
	}
	d := s.New(t, dir, agent)
	for i := range 3 {
		if _, err := d.Start(t.Context(), small(id(i))); err != nil {
			fmt.Println("start:", err)
			os.Exit(1)
		}
	}
	fmt.Println(crashReady)
	select {} // until killed
}

// sweep: the machines of a server that was killed are removed by the next
// one, and only these.
func sweep(t *testing.T, b *bench) {
	if err := os.WriteFile(b.dir+"/agent", b.agent, 0o644); err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	server := exec.Command(os.Args[0], "-test.run=^"+name+"$")
	server.Env = append(os.Environ(), crashVar+"="+b.dir)
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if lines.Text() == crashReady {
			break
		}
	}
	_ = server.Process.Kill()
	_ = server.Wait()
	if !strings.Contains(said.String(), crashReady) {
		t.Fatalf("the server that was to be killed says: %s", said.String())
	}
	mine := b.start(t, small("mine"))
	ids, err := b.Sweep(b.ctx)
	slices.Sort(ids)
	if err != nil || !slices.Equal(ids, []string{id(0), id(1), id(2)}) {
		t.Errorf("swept %q, %v", ids, err)
	}
	if got := b.sh(t, mine, "echo", "alive"); got != "alive" {
		t.Error(got)
	}
	if ids, err := b.Sweep(b.ctx); err != nil || len(ids) != 0 {
		t.Errorf("a second time: %q, %v", ids, err)
	}
	b.start(t, small(id(0)))
}
