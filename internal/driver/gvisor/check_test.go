package gvisor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	proc := t.TempDir()
	set := func(name, content string) {
		name = filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	set("self/status", "Name:\tx\nSeccomp:\t0\n")
	set("meminfo", "MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\n")
	set("sys/kernel/pid_max", "32768\n")
	good := probe{proc: proc, release: "6.1.0-13-amd64", machine: "x86_64", data: t.TempDir()}
	expect := func(p probe, fatal bool, words ...string) {
		t.Helper()
		var found []string
		for _, f := range p.check() {
			if strings.Contains(f.Title, "MiB are free") {
				continue // of the disk that this test runs on
			}
			if f.Remedy == "" || f.Fatal != fatal {
				t.Errorf("%+v: fatal should be %v", f, fatal)
			}
			found = append(found, f.Title)
		}
		if len(found) != len(words) {
			t.Errorf("found %q, want %q", found, words)
			return
		}
		for i, w := range words {
			if !strings.Contains(found[i], w) {
				t.Errorf("found %q, want %q", found[i], w)
			}
		}
	}
	expect(good, false)

	bad := good
	bad.release, bad.machine, bad.uid, bad.cgroups = "5.4.0", "riscv64", 1000, errors.New("none")
	expect(bad, true, "riscv64", "5.4.0", "root", "limited")

	bad = good
	bad.data = filepath.Join(proc, "missing")
	expect(bad, true, "data directory")

	set("sys/kernel/yama/ptrace_scope", "3\n")
	set("self/status", "Name:\tx\n")
	expect(good, true, "ptrace", "seccomp")
	set("sys/kernel/yama/ptrace_scope", "1\n")
	set("self/status", "Name:\tx\nSeccomp:\t0\n")

	set("sys/kernel/pid_max", "1000\n")
	set("sys/vm/max_map_count", "1000\n")
	set("meminfo", "MemAvailable: 4000 kB\n")
	expect(good, false, "1000 processes", "1000 memory mappings", "3 MiB of memory")
}
