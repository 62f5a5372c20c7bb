// Package drivertest is the conformance suite of package driver: what every
// driver's machines must do, whatever they are made of.
package drivertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// Suite is a driver to be tested.
type Suite struct {
	// New makes a driver whose machines run agent as PID 1. The driver must
	// live until the test t ends.
	New func(t *testing.T, dataDir string, agent []byte) driver.Driver
	// Leftovers lists what of the machines of dataDir is left on the host,
	// besides files in it and child processes.
	Leftovers func(t *testing.T, dataDir string) []string
	// Limited: machines are really limited on this host.
	Limited bool
}

// Agent builds the suite's agent.
func Agent(t testing.TB) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "agent")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out,
		"github.com/glovebox-dev/glovebox/internal/driver/drivertest/testagent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the test agent: %v\n%s", err, b)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Run runs the suite in the test t. The test must do nothing else before it:
// the suite executes the test binary again, with t's name, for what must
// happen to a server of its own.
func Run(t *testing.T, s Suite) {
	if dir := os.Getenv(crashVar); dir != "" {
		s.crash(t, dir)
		return
	}
	agent := Agent(t)
	for _, c := range []struct {
		name    string
		limited bool
		run     func(t *testing.T, b *bench)
	}{
		{"StartStop", false, startStop},
		{"BadSpec", false, badSpec},
		{"Cable", false, cable},
		{"CableBulk", false, cableBulk},
		{"Exec", false, execs},
		{"Layers", false, layers},
		{"HostInvisible", false, hostInvisible},
		{"Sizes", false, sizes},
		{"Disk", false, disk},
		{"SaveDisk", false, saveDisk},
		{"Drives", false, drives},
		{"SaveDiskFails", false, saveDiskFails},
		{"StopWhileSaving", false, stopWhileSaving},
		{"TaskLimit", true, taskLimit},
		{"CPUQuota", true, cpuQuota},
		{"OutOfMemory", true, outOfMemory},
		{"Usage", true, usage},
		{"AgentEnds", false, agentEnds},
		{"StopWhileBusy", false, stopWhileBusy},
		{"StartCancelled", false, startCancelled},
		{"Parallel", false, parallel},
		{"ManyDescriptors", false, manyDescriptors},
		{"Repeated", false, repeated},
		{"Sweep", false, sweep},
		{"Adopt", false, adopt},
		{"AdoptedEnds", false, adoptedEnds},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.limited && !s.Limited {
				t.Skip("machines are not limited on this host")
			}
			c.run(t, newBench(t, s, agent))
		})
	}
}

// bench is one driver in a data directory of its own. When the test ends it
// checks that nothing of its machines is left.
type bench struct {
	driver.Driver
	Suite
	ctx   context.Context
	dir   string
	agent []byte
}

func newBench(t *testing.T, s Suite, agent []byte) *bench {
	t.Helper()
	b := &bench{Suite: s, dir: t.TempDir(), agent: agent}
	before := hostState(t, b.dir)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	b.ctx = ctx
	// Registered first, so it runs last, when the driver is closed.
	t.Cleanup(func() {
		cancel()
		if left := s.Leftovers(t, b.dir); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		if now := hostState(t, b.dir); now != before {
			t.Errorf("before: %+v\nafter:  %+v", before, now)
		}
	})
	b.Driver = s.New(t, b.dir, agent)
	return b
}

// host is what must be the same before and after.
type host struct {
	descriptors string // what they lead to
	children    int
	mounts      int // that have to do with the data directory: others come and go
}

func hostState(t *testing.T, dir string) (h host) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var to []string
	for _, fd := range fds {
		// Go's own (its poller, the CPU limit of this process) are made when
		// first needed, and kept.
		name, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil && !strings.HasPrefix(name, "anon_inode:[event") && !strings.HasPrefix(name, "/sys/fs/cgroup/cpu/") && !strings.HasSuffix(name, "/fd") {
			to = append(to, name)
		}
	}
	slices.Sort(to)
	h.descriptors = strings.Join(to, " ")
	h.children = len(children())
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	h.mounts = strings.Count(string(b), dir)
	return h
}

// children are the PIDs of this process's children, zombies included.
func children() (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(f) > 1 && f[1] == strconv.Itoa(os.Getpid()) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// small is the machine of most tests.
func small(id string) driver.Spec {
	return driver.Spec{ID: id, VCPUs: 1, MemoryBytes: 256 << 20, DiskBytes: 64 << 20, Hostname: "box"}
}

// start starts a machine that is stopped when the test ends.
func (b *bench) start(t *testing.T, spec driver.Spec) driver.Machine {
	t.Helper()
	m, err := b.Start(b.ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.stop(t, m) })
	return m
}

// stop stops a machine and returns its last words.
func (b *bench) stop(t *testing.T, m driver.Machine) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
	return m.Err()
}

// sh runs the test agent's command inside and returns its output.
func (b *bench) sh(t *testing.T, m driver.Machine, argv ...string) string {
	t.Helper()
	out, code, err := m.Exec(b.ctx, append([]string{"/agent"}, argv...))
	if err != nil || code != 0 {
		t.Fatalf("exec %q: code %d, %v: %s", argv, code, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (b *bench) number(t *testing.T, m driver.Machine, argv ...string) int64 {
	t.Helper()
	out := b.sh(t, m, argv...)
	n, err := strconv.ParseInt(strings.Fields(out + " x")[0], 10, 64)
	if err != nil {
		t.Fatalf("exec %q: no number in %q", argv, out)
	}
	return n
}

// awaitEnd waits for a machine that ends by itself.
func (b *bench) awaitEnd(t *testing.T, m driver.Machine) error {
	t.Helper()
	select {
	case <-m.Done():
		return m.Err()
	case <-b.ctx.Done():
		t.Fatal("the machine does not end")
		return nil
	}
}

func id(i int) string { return fmt.Sprintf("m%d", i) }
