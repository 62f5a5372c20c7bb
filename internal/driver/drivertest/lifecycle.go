package drivertest

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

func startStop(t *testing.T, b *bench) {
	m := b.start(t, small("one"))
	if m.ID() != "one" || m.Err() != nil {
		t.Errorf("id %q, err %v", m.ID(), m.Err())
	}
	if _, err := b.Start(b.ctx, small("one")); err == nil {
		t.Error("a second machine of the same id starts")
	}
	if err := b.stop(t, m); !errors.Is(err, driver.ErrStopped) {
		t.Errorf("after Stop: %v", err)
	}
	b.stop(t, m) // idempotent
	if err := m.MountLayers(b.ctx, []string{"/x"}); err == nil {
		t.Error("an ended machine takes layers")
	}
	if _, _, err := m.Exec(b.ctx, []string{"/agent", "true"}); !errors.Is(err, driver.ErrStopped) {
		t.Errorf("exec in an ended machine: %v", err)
	}
	if _, err := m.Usage(b.ctx); !errors.Is(err, driver.ErrStopped) {
		t.Errorf("usage of an ended machine: %v", err)
	}
	b.start(t, small("one")) // the id is free again
}

func badSpec(t *testing.T, b *bench) {
	for field, change := range map[string]func(*driver.Spec){
		"id":       func(s *driver.Spec) { s.ID = "../x" },
		"vcpus":    func(s *driver.Spec) { s.VCPUs = 0 },
		"memory":   func(s *driver.Spec) { s.MemoryBytes = 1 },
		"disk":     func(s *driver.Spec) { s.DiskBytes = -1 },
		"hostname": func(s *driver.Spec) { s.Hostname = strings.Repeat("x", 65) },
	} {
		s := small("bad")
		change(&s)
		if _, err := b.Start(b.ctx, s); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func agentEnds(t *testing.T, b *bench) {
	m := b.start(t, small("exits"))
	c := newGateway(t, m).dial(b.ctx, t, driver.AgentPort)
	if _, err := c.Write([]byte("exit\n")); err != nil {
		t.Fatal(err)
	}
	if err := b.awaitEnd(t, m); !errors.Is(err, driver.ErrKernel) || !strings.Contains(err.Error(), "3") {
		t.Errorf("PID 1 exited with 3: %v", err)
	}
	m = b.start(t, small("panics"))
	c = newGateway(t, m).dial(b.ctx, t, driver.AgentPort)
	if _, err := c.Write([]byte("panic\n")); err != nil {
		t.Fatal(err)
	}
	if err := b.awaitEnd(t, m); !errors.Is(err, driver.ErrKernel) || !strings.Contains(err.Error(), "unwell") {
		t.Errorf("PID 1 panicked: %v", err)
	}
}

func stopWhileBusy(t *testing.T, b *bench) {
	m := b.start(t, small("busy"))
	done := make(chan error, 1)
	go func() {
		_, _, err := m.Exec(b.ctx, []string{"/agent", "burn", "1h", "16"})
		done <- err
	}()
	// Busy once it has used some time.
	for first := b.cpu(t, m); b.cpu(t, m) < first+50*time.Millisecond; {
		time.Sleep(5 * time.Millisecond)
	}
	begin := time.Now()
	b.stop(t, m)
	if d := time.Since(begin); d > 10*time.Second {
		t.Errorf("stop took %v", d)
	}
	if err := <-done; !errors.Is(err, driver.ErrStopped) {
		t.Errorf("the running exec: %v", err)
	}
}

func (b *bench) cpu(t *testing.T, m driver.Machine) time.Duration {
	t.Helper()
	u, err := m.Usage(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	return u.CPU
}

func startCancelled(t *testing.T, b *bench) {
	for _, after := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(b.ctx, after)
		m, err := b.Start(ctx, small("cancelled"))
		cancel()
		if err == nil {
			b.stop(t, m) // it was faster
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cancelled after %v: %v", after, err)
		}
	}
}

func parallel(t *testing.T, b *bench) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			m, err := b.Start(b.ctx, small(id(i)))
			if err != nil {
				t.Error(err)
				return
			}
			out, code, err := m.Exec(b.ctx, []string{"/agent", "echo", id(i)})
			if err != nil || code != 0 || strings.TrimSpace(string(out)) != id(i) {
				t.Errorf("%s: %q, code %d, %v", id(i), out, code, err)
			}
			b.stop(t, m)
		})
	}
	wg.Wait()
}

// manyDescriptors: a server with hundreds of open files starts machines too.
func manyDescriptors(t *testing.T, b *bench) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for range 300 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	m := b.start(t, small("many"))
	if got := b.sh(t, m, "echo", "hi"); got != "hi" {
		t.Error(got)
	}
}

func repeated(t *testing.T, b *bench) {
	n := 50
	if testing.Short() {
		n = 5
	}
	for i := range n {
		m, err := b.Start(b.ctx, small(id(i)))
		if err != nil {
			t.Fatal(err)
		}
		b.stop(t, m)
	}
}
