package drivertest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
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
	frozen := make(chan struct{})
	for i := range 3 {
		m, err := d.Start(t.Context(), small(id(i)))
		if err == nil {
			_, _, err = m.Exec(t.Context(), []string{"/agent", "tree", upper})
		}
		if err != nil {
			fmt.Println("start:", err)
			os.Exit(1)
		}
		if i == 2 { // dies with its guest frozen
			go m.SaveDisk(t.Context(), true, func([]driver.Disk) error { //nolint:errcheck // it never returns
				close(frozen)
				select {}
			})
			<-frozen
		}
	}
	fmt.Println(crashReady)
	select {} // until killed
}

// killedServer leaves the machines of a server that was killed.
func (b *bench) killedServer(t *testing.T) {
	t.Helper()
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
}

// sweep: the machines of a server that was killed are removed by the next
// one, and only these.
func sweep(t *testing.T, b *bench) {
	b.killedServer(t)
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

// adopt: the machines of a server that was killed are taken over by the next
// one, as often as servers die, and serve it as if it had started them.
func adopt(t *testing.T, b *bench) {
	b.killedServer(t)
	if _, err := b.Adopt(b.ctx, "unknown"); err == nil {
		t.Error("a machine that never was is taken over")
	}
	if _, err := b.Adopt(b.ctx, "../"+id(0)); err == nil {
		t.Error("a path is taken for a machine")
	}
	for i := range 3 {
		m, err := b.Adopt(b.ctx, id(i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.stop(t, m) })
		if _, err := b.Adopt(b.ctx, id(i)); err == nil {
			t.Error("a machine is taken over twice")
		}
		c := newGateway(t, m).dial(b.ctx, t, driver.AgentPort)
		if got := ask(t, c, "ping"); got != "pong" {
			t.Errorf("over the new cable: %q", got)
		}
		if got := b.sh(t, m, "echo", "alive"); got != "alive" {
			t.Error(got)
		}
		if u, err := m.Usage(b.ctx); err != nil || u.CPU <= 0 || u.MemoryBytes <= 0 || u.DiskBytes <= 0 {
			t.Errorf("usage %+v, %v", u, err)
		}
		if err := m.MountLayers(b.ctx, []string{"/x"}); err == nil {
			t.Error("a machine that is taken over takes layers")
		}
	}
	ids, err := b.Sweep(b.ctx)
	if err != nil || len(ids) != 0 {
		t.Errorf("swept %q, %v", ids, err)
	}
}

// adoptedEnds: a machine that was taken over ends as any other.
func adoptedEnds(t *testing.T, b *bench) {
	b.killedServer(t)
	m, err := b.Adopt(b.ctx, id(0))
	if err != nil {
		t.Fatal(err)
	}
	err = m.SaveDisk(b.ctx, false, func(disks []driver.Disk) error {
		d := disks[0]
		checkTree(t, entries(t, d))
		return nil
	})
	if err != nil || !errors.Is(m.Err(), driver.ErrStopped) {
		t.Errorf("%v; it ended with %v", err, m.Err())
	}
	if m, err = b.Adopt(b.ctx, id(1)); err != nil {
		t.Fatal(err)
	}
	c := newGateway(t, m).dial(b.ctx, t, driver.AgentPort)
	if _, err := c.Write([]byte("exit\n")); err != nil {
		t.Fatal(err)
	}
	if err := b.awaitEnd(t, m); !errors.Is(err, driver.ErrKernel) {
		t.Errorf("PID 1 ended, and the machine with %v", err)
	}
	if _, err := b.Adopt(b.ctx, id(1)); err == nil {
		t.Error("an ended machine is taken over")
	}
	if ids, err := b.Sweep(b.ctx); err != nil || !slices.Equal(ids, []string{id(2)}) {
		t.Errorf("swept %q, %v", ids, err)
	}
}
