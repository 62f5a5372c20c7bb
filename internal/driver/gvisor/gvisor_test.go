package gvisor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// The test binary is its own sandbox kernel.
func TestMain(m *testing.M) {
	if Main() {
		return
	}
	os.Exit(m.Run())
}

func testAgent(t testing.TB) []byte {
	out := filepath.Join(t.TempDir(), "agent")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "github.com/glovebox-dev/glovebox/internal/driver/drivertest/testagent")
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

func TestFirst(t *testing.T) {
	d, err := New(Options{DataDir: t.TempDir(), Agent: testAgent(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	t0 := time.Now()
	m, err := d.Start(ctx, driver.Spec{ID: "a", VCPUs: 2, MemoryBytes: 512 << 20, DiskBytes: 64 << 20, Hostname: "box"})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("started", time.Since(t0))
	for _, argv := range [][]string{{"/agent", "echo", "hi"}, {"/agent", "cat", "/proc/mounts"}, {"/agent", "cat", "/proc/meminfo"}, {"/agent", "cpus"}, {"/agent", "rlimits"}, {"/agent", "statfs", "/up"}, {"/agent", "statfs", "/dev/shm"}, {"/agent", "env"}, {"/agent", "uid"}} {
		t0 = time.Now()
		out, code, err := m.Exec(ctx, argv)
		t.Logf("%v: %v %s %d %v", argv, time.Since(t0), out, code, err)
	}
	u, err := m.Usage(ctx)
	t.Log(u, err)
	t0 = time.Now()
	if err := m.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	t.Log("stopped", time.Since(t0), m.Err())
}
