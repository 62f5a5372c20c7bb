package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/agentbin"
)

// benchAgent is the real agent where it was built.
func benchAgent(b *testing.B) []byte {
	if a, err := agentbin.Agent(); err == nil {
		return a
	}
	return drivertest.Agent(b)
}

// syn is a TCP SYN from the gateway to the agent's port.
func syn(port uint16) []byte {
	p := make([]byte, 40)
	p[0], p[3], p[8], p[9] = 0x45, 40, 64, unix.IPPROTO_TCP
	copy(p[12:], driver.GatewayAddr.AsSlice())
	copy(p[16:], driver.GuestAddr.AsSlice())
	sum := func(b []byte, s uint32) uint16 {
		for i := 0; i < len(b); i += 2 {
			s += uint32(b[i])<<8 | uint32(b[i+1])
		}
		s = s>>16 + s&0xffff
		return ^uint16(s + s>>16)
	}
	h := sum(p[:20], 0)
	p[10], p[11] = byte(h>>8), byte(h)
	p[20], p[21], p[22], p[23] = byte(port>>8), byte(port), byte(driver.AgentPort>>8&0xff), byte(driver.AgentPort&0xff)
	p[32], p[33], p[34], p[35] = 5<<4, 2 /* SYN */, 0xff, 0xff
	h = sum(p[12:40], unix.IPPROTO_TCP+20)
	p[36], p[37] = byte(h>>8), byte(h)
	return p
}

// awaitAgent knocks at the agent's port until it is answered by a SYN-ACK:
// what a machine takes to be of use, without the cost of a network stack.
func awaitAgent(b *testing.B, m driver.Machine) {
	buf := make([]byte, driver.MTU)
	for port := uint16(20000); ; port++ {
		if _, err := unix.Write(m.Cable(), syn(port)); err != nil {
			b.Fatal(err)
		}
		fds := []unix.PollFd{{Fd: int32(m.Cable()), Events: unix.POLLIN}}
		if n, _ := unix.Poll(fds, 1000); n == 1 {
			n, err := unix.Read(m.Cable(), buf)
			if err != nil {
				b.Fatal(err)
			}
			if n >= 40 && buf[9] == unix.IPPROTO_TCP && buf[33] == 0x12 {
				return
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// BenchmarkStart is from nothing to an agent that answers.
func BenchmarkStart(b *testing.B) {
	d := newDriver(b, b.TempDir(), benchAgent(b))
	ctx := context.Background()
	phases := map[string]time.Duration{}
	var last time.Time
	d.fault = func(step string) error {
		now := time.Now()
		phases[step] += now.Sub(last)
		last = now
		return nil
	}
	for i := 0; b.Loop(); i++ {
		last = time.Now()
		m, err := d.Start(ctx, driver.Spec{ID: fmt.Sprint("b", i), VCPUs: 2, MemoryBytes: 512 << 20, DiskBytes: 1 << 30, Hostname: "box"})
		if err != nil {
			b.Fatal(err)
		}
		awaitAgent(b, m)
		now := time.Now()
		phases["agent"] += now.Sub(last)
		if err := m.Stop(ctx); err != nil {
			b.Fatal(err)
		}
		phases["stop"] += time.Since(now)
	}
	for step, d := range phases {
		b.ReportMetric(float64(d.Microseconds())/1000/float64(b.N), step+"-ms")
	}
}

// BenchmarkExec is `true` by the kernel's own means.
func BenchmarkExec(b *testing.B) {
	d := newDriver(b, b.TempDir(), drivertest.Agent(b))
	ctx := context.Background()
	m, err := d.Start(ctx, driver.Spec{ID: "exec", VCPUs: 2, MemoryBytes: 512 << 20, DiskBytes: 1 << 30, Hostname: "box"})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Stop(ctx)
	for b.Loop() {
		if _, code, err := m.Exec(ctx, []string{"/agent", "true"}); err != nil || code != 0 {
			b.Fatal(code, err)
		}
	}
}

// BenchmarkIdle reports what idle machines cost, each, in MB.
func BenchmarkIdle(b *testing.B) {
	d := newDriver(b, b.TempDir(), benchAgent(b))
	ctx := context.Background()
	const n = 20
	for b.Loop() {
		before := available(b)
		var charged, pss int64
		var machines []driver.Machine
		for i := range n {
			m, err := d.Start(ctx, driver.Spec{ID: fmt.Sprint("i", i), VCPUs: 2, MemoryBytes: 512 << 20, DiskBytes: 1 << 30, Hostname: "box"})
			if err != nil {
				b.Fatal(err)
			}
			awaitAgent(b, m)
			machines = append(machines, m)
		}
		after := available(b)
		for _, m := range machines {
			u, err := m.Usage(ctx)
			if err != nil {
				b.Fatal(err)
			}
			charged += u.MemoryBytes
			pss += readPSS(m.(*Machine).proc.pid)
			if err := m.Stop(ctx); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(charged)/n/1e6, "charged-MB")
		b.ReportMetric(float64(pss)/n/1e6, "kernel-PSS-MB")
		b.ReportMetric(float64(before-after)/n/1e6, "of-available-MB")
	}
}

func available(b *testing.B) int64 {
	runtime.GC()
	return meminfo(b, "/proc/meminfo", "MemAvailable:")
}

func readPSS(pid int) int64 {
	return meminfo(nil, filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"), "Pss:")
}

// meminfo reads a line "KEY N kB", in bytes.
func meminfo(b *testing.B, name, key string) int64 {
	text, err := os.ReadFile(name)
	if err != nil && b != nil {
		b.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		f := bytes.Fields(line)
		if len(f) >= 2 && string(f[0]) == key {
			n, _ := strconv.ParseInt(string(f[1]), 10, 64)
			return n << 10
		}
	}
	return 0
}
