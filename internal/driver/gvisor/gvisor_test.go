package gvisor

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/cgroup"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
)

// The test binary is its own sandbox kernel.
func TestMain(m *testing.M) {
	if Main() {
		return
	}
	os.Exit(m.Run())
}

// newDriver makes a driver that is closed when the test ends.
func newDriver(t testing.TB, dir string, agent []byte) *Driver {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	d, err := New(Options{DataDir: dir, Agent: agent, Unlimited: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// leftovers is what is left of the machines of a data directory.
func leftovers(t *testing.T, dir string) (left []string) {
	t.Helper()
	left, _ = filepath.Glob(filepath.Join(dir, "machines", "*"))
	for _, mount := range []string{"", "memory", "cpu", "cpuacct", "pids"} {
		groups, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", mount, cgroupPath(dir), "*"))
		for _, g := range groups {
			if fi, err := os.Stat(g); err == nil && fi.IsDir() {
				left = append(left, g)
			}
		}
	}
	return left
}

func limited() bool {
	p, err := cgroup.Open("glovebox/probe")
	if err != nil {
		return false
	}
	return p.Remove(context.Background()) == nil
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Suite{
		New: func(t *testing.T, dir string, agent []byte) driver.Driver {
			return newDriver(t, dir, agent)
		},
		Leftovers: leftovers,
		Limited:   limited(),
	})
}
