package gvisor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
)

func testSpec(id string) driver.Spec {
	return driver.Spec{ID: id, VCPUs: 1, MemoryBytes: 128 << 20, DiskBytes: 16 << 20, Hostname: "box"}
}

// descriptors counts this process's open files, but for those of Go's poller.
func descriptors(t *testing.T) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); !strings.HasPrefix(to, "anon_inode:[event") {
			n++
		}
	}
	return n
}

// kernels are the processes that are sandbox kernels of a data directory.
func kernels(dir string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		if strings.HasPrefix(string(b), kernelName+"\x00") && strings.Contains(string(b), dir) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}

// TestFaults makes each step of Start fail, and looks for what it left.
func TestFaults(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir, drivertest.Agent(t))
	ctx := context.Background()
	// Once whole, so that what is made once exists.
	m, err := d.Start(ctx, testSpec("whole"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	var steps []string
	d.fault = func(step string) error { steps = append(steps, step); return nil }
	if m, err = d.Start(ctx, testSpec("steps")); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if len(steps) < 9 {
		t.Fatalf("steps: %q", steps)
	}
	goroutines := goleak.IgnoreCurrent()
	before := descriptors(t)
	broken := errors.New("broken on purpose")
	for _, bad := range steps {
		d.fault = func(step string) error {
			if step == bad {
				return broken
			}
			return nil
		}
		if _, err := d.Start(ctx, testSpec("faulty")); !errors.Is(err, broken) {
			t.Errorf("%s: %v", bad, err)
		}
		if left := leftovers(t, dir); len(left) > 0 {
			t.Errorf("%s: left %q", bad, left)
		}
		if pids := kernels(dir); len(pids) > 0 {
			t.Errorf("%s: left the processes %q", bad, pids)
		}
		if n := descriptors(t); n != before {
			t.Errorf("%s: %d descriptors, %d before", bad, n, before)
		}
	}
	goleak.VerifyNone(t, goroutines)
	d.fault = nil
	// Nothing of it stands in the way of the next.
	if m, err = d.Start(ctx, testSpec("faulty")); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestKernelRefuses: when the kernel cannot boot, the error holds its words.
func TestKernelRefuses(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir, drivertest.Agent(t))
	d.flags = append(d.flags, "--no-such-flag")
	_, err := d.Start(context.Background(), testSpec("refuses"))
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("%v", err)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// TestSweepSparesReusedPID: a state file that names a process that is not the
// machine's, any more, does it no harm.
func TestSweepSparesReusedPID(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir, drivertest.Agent(t))
	bystander := exec.Command("sleep", "1000")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bystander.Process.Kill(); _ = bystander.Wait() }()
	pid := bystander.Process.Pid
	start, err := startTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []state{
		{ID: "other-start", PID: pid, PIDStart: start + 1, BootID: bootID()},
		{ID: "other-boot", PID: pid, PIDStart: start, BootID: "another"},
		{ID: "unborn", BootID: bootID()},
	} {
		at := filepath.Join(d.machines, s.ID)
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := s.save(at); err != nil {
			t.Fatal(err)
		}
	}
	// A directory with no state, and one with a broken state.
	for name, content := range map[string]string{"empty": "", "broken": `{"pid": 1, `} {
		at := filepath.Join(d.machines, name)
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if content != "" {
			if err := os.WriteFile(filepath.Join(at, stateFile), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	ids, err := d.Sweep(context.Background())
	if err != nil || len(ids) != 5 {
		t.Errorf("swept %q, %v", ids, err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the bystander: %v", err)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// TestKilled: a kernel that something else kills is no stop and no lack of
// memory.
func TestKilled(t *testing.T) {
	d := newDriver(t, t.TempDir(), drivertest.Agent(t))
	m, err := d.Start(context.Background(), testSpec("killed"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(m.(*Machine).proc.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-m.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
	if err := m.Err(); !errors.Is(err, driver.ErrKernel) || errors.Is(err, driver.ErrOutOfMemory) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("%v", err)
	}
}

// TestIsolation looks at the kernel from the host: whose it is, what it may
// do, what it has open.
func TestIsolation(t *testing.T) {
	d := newDriver(t, t.TempDir(), drivertest.Agent(t))
	m, err := d.Start(context.Background(), testSpec("isolation"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Stop(context.Background())
	proc := "/proc/" + strconv.Itoa(m.(*Machine).proc.pid)
	b, err := os.ReadFile(proc + "/status")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		got[k] = strings.Join(strings.Fields(v), " ")
	}
	for k, want := range map[string]string{
		"Uid": "65534 65534 65534 65534", "Gid": "65534 65534 65534 65534", "Groups": "",
		"CapEff": "0000000000080000", "CapPrm": "0000000000080000", "CapBnd": "0000000000080000", // SYS_PTRACE, of its stubs
		"CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
	} {
		if got[k] != want {
			t.Errorf("%s: %q, want %q", k, got[k], want)
		}
	}
	for _, ns := range []string{"pid", "mnt", "net", "ipc", "uts"} {
		own, _ := os.Readlink("/proc/self/ns/" + ns)
		its, err := os.Readlink(proc + "/ns/" + ns)
		if err != nil || own == its {
			t.Errorf("namespace %s: %q, %v", ns, its, err)
		}
	}
	if b, err := os.ReadFile(proc + "/mountinfo"); err != nil || strings.Count(string(b), "\n") > 2 {
		t.Errorf("mounts: %s, %v", b, err)
	}
	fds, err := os.ReadDir(proc + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, _ := os.Readlink(proc + "/fd/" + fd.Name())
		switch {
		case strings.HasPrefix(to, "/memfd:"), strings.HasPrefix(to, "anon_inode:"), strings.HasPrefix(to, "socket:"),
			strings.HasPrefix(to, "pipe:"), to == "/dev/null", to == d.bootImage,
			strings.HasPrefix(to, d.machines+"/isolation/"):
		default:
			t.Errorf("descriptor %s leads to %s", fd.Name(), to)
		}
	}
	if b, _ := os.ReadFile(proc + "/environ"); len(strings.Trim(string(b), "\x00")) > 0 && strings.Contains(string(b), "PATH=") {
		t.Errorf("environment: %q", b)
	}
}
