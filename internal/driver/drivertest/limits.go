package drivertest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

func sizes(t *testing.T, b *bench) {
	s := small("sizes")
	s.VCPUs = 2
	m := b.start(t, s)
	if n := b.number(t, m, "cpus"); n != 2 {
		t.Errorf("CPUs: %d", n)
	}
	var kib int64
	if _, err := fmt.Sscanf(b.sh(t, m, "cat", "/proc/meminfo"), "MemTotal: %d kB", &kib); err != nil || kib<<10 != s.MemoryBytes {
		t.Errorf("MemTotal: %d KiB, %v", kib, err)
	}
	if n := b.number(t, m, "statfs", driver.UpperDir); n != s.DiskBytes {
		t.Errorf("the disk's size: %d", n)
	}
	if n := b.number(t, m, "statfs", "/dev/shm"); n > s.MemoryBytes {
		t.Errorf("size of /dev/shm: %d", n)
	}
}

func disk(t *testing.T, b *bench) {
	s := small("disk")
	m := b.start(t, s)
	out := b.sh(t, m, "fill", driver.UpperDir+"/f")
	var n int64
	var noSpace bool
	if _, err := fmt.Sscan(out, &n, &noSpace); err != nil || !noSpace || n < s.DiskBytes*9/10 || n > s.DiskBytes {
		t.Errorf("filling a disk of %d bytes: %s", s.DiskBytes, out)
	}
	if got := b.sh(t, m, "echo", "alive"); got != "alive" {
		t.Error(got)
	}
	u, err := m.Usage(b.ctx)
	if err != nil || u.DiskBytes < n {
		t.Errorf("usage after writing %d bytes: %+v, %v", n, u, err)
	}
}

// taskLimit: a guest can have many processes; one that makes as many
// as it can harms no other machine, and its own end, if it comes to that, has
// a reason.
func taskLimit(t *testing.T, b *bench) {
	s := small("tasks")
	s.MemoryBytes = 256 << 20
	m := b.start(t, s)
	other := b.start(t, small("other"))
	out, _, err := m.Exec(b.ctx, []string{"/agent", "forks", "50", "1000"})
	if err != nil || !strings.HasPrefix(string(out), "50 ok") {
		t.Errorf("50 processes: %s, %v", out, err)
	}
	out, code, err := m.Exec(b.ctx, []string{"/agent", "forks", "1000000", "1000"})
	t.Logf("a fork bomb: %s, code %d, %.300v", out, code, err)
	if err == nil {
		// PID 1 may still have been ended along with it; and its children,
		// which live on, may leave no memory for another command.
		out, code, err = m.Exec(b.ctx, []string{"/agent", "echo", "alive"})
		if err == nil && code != 128+9 && string(out) != "alive\n" {
			t.Errorf("after it: %s, code %d", out, code)
		}
	}
	if err != nil && !errors.Is(err, driver.ErrOutOfMemory) {
		t.Errorf("the machine's end: %v", err)
	}
	if got := b.sh(t, other, "echo", "alive"); got != "alive" {
		t.Error(got)
	}
}

func cpuQuota(t *testing.T, b *bench) {
	m := b.start(t, small("quota"))
	before, begin := b.cpu(t, m), time.Now()
	b.sh(t, m, "burn", "2s", "4")
	share := float64(b.cpu(t, m)-before) / float64(time.Since(begin))
	if share > 1.25 {
		t.Errorf("four threads on one CPU used %.2f of one", share)
	}
}

// outOfMemory: a guest that takes more than it was promised is ended, by
// process or as a whole, and the machine's end says why.
func outOfMemory(t *testing.T, b *bench) {
	m := b.start(t, small("memory"))
	if got := b.sh(t, m, "touch", "200"); got != "touched" {
		t.Errorf("within the limit: %s", got)
	}
	out, code, err := m.Exec(b.ctx, []string{"/agent", "touch", "2048"})
	switch {
	case errors.Is(err, driver.ErrOutOfMemory):
		if err := b.awaitEnd(t, m); !errors.Is(err, driver.ErrOutOfMemory) {
			t.Errorf("the machine's end: %v", err)
		}
	case err == nil && code == 128+9:
		t.Log("the process was killed, the machine lives")
		if got := b.sh(t, m, "touch", "150"); got != "touched" {
			t.Errorf("its memory is not free again: %s", got)
		}
	default:
		t.Errorf("eight times the promised memory: %s, code %d, %v", out, code, err)
	}
}

func usage(t *testing.T, b *bench) {
	m := b.start(t, small("usage"))
	b.sh(t, m, "true")
	first, err := m.Usage(b.ctx)
	if err != nil || first.CPU <= 0 || first.MemoryBytes <= 0 {
		t.Errorf("at first: %+v, %v", first, err)
	}
	hold := make(chan struct{})
	go func() {
		defer close(hold)
		_, _, _ = m.Exec(b.ctx, []string{"/agent", "hold", "100"})
	}()
	for {
		u, err := m.Usage(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if u.MemoryBytes >= first.MemoryBytes+100<<20 && u.CPU > first.CPU {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	b.stop(t, m)
	<-hold
}
