package cgroup

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
)

// fakeV2 is a directory that looks like a mounted version 2 hierarchy, and
// the mountinfo that says so.
func fakeV2(t *testing.T, controllers string) (mountinfo, dir string) {
	t.Helper()
	dir = t.TempDir()
	put(t, dir, "cgroup.controllers", controllers)
	put(t, dir, "cgroup.subtree_control", "")
	mountinfo = filepath.Join(t.TempDir(), "mountinfo")
	put(t, filepath.Dir(mountinfo), "mountinfo", "30 20 0:26 / "+dir+" rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n")
	return mountinfo, dir
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestV2(t *testing.T) {
	info, dir := fakeV2(t, "cpuset cpu io memory pids")
	// A real hierarchy makes these files itself.
	for _, d := range []string{"glovebox", "glovebox/x"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, d), "cgroup.subtree_control", "")
	}
	p, err := open(info, "glovebox/x")
	if err != nil {
		t.Fatal(err)
	}
	if p.Version() != 2 {
		t.Errorf("version %d", p.Version())
	}
	for _, d := range []string{"", "glovebox", "glovebox/x"} {
		if got := get(t, filepath.Join(dir, d), "cgroup.subtree_control"); got != "+memory +cpu +pids" {
			t.Errorf("%q: subtree_control %q", d, got)
		}
	}
	g := p.Group("m")
	if err := g.Create(Limits{MemoryBytes: 1 << 20, MilliCPUs: 1500, Tasks: 7}); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "glovebox/x/m")
	for file, want := range map[string]string{
		"memory.max": "1048576", "memory.swap.max": "0", "cpu.max": "150000 100000", "pids.max": "7",
	} {
		if got := get(t, at, file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	put(t, at, "cpu.stat", "usage_usec 1500\nuser_usec 1000\n")
	put(t, at, "memory.current", "5000\n")
	put(t, at, "memory.stat", "anon 100\ninactive_file 1000\n")
	put(t, at, "memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n")
	u, err := g.Usage()
	if want := (Usage{CPU: 1500 * time.Microsecond, MemoryBytes: 4000, OOMKills: 2}); err != nil || u != want {
		t.Errorf("usage %+v, %v, want %+v", u, err, want)
	}
	if names, err := p.List(); err != nil || len(names) != 1 || names[0] != "m" {
		t.Errorf("list: %q, %v", names, err)
	}
	if err := g.Create(Limits{}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second one of the same name: %v", err)
	}
}

// TestV2MakeRoom: in a container the root holds processes, which have to move.
func TestV2MakeRoom(t *testing.T) {
	_, dir := fakeV2(t, "cpu memory pids")
	put(t, dir, "cgroup.procs", "1\n17\n")
	v := &v2{mount: dir, path: "glovebox/x"}
	if err := v.makeRoom(dir); err != nil {
		t.Fatal(err)
	}
	if got := get(t, filepath.Join(dir, leaf), "cgroup.procs"); got != "17" { // the last one written
		t.Errorf("moved: %q", got)
	}
}

func TestUnavailable(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	put(t, filepath.Dir(empty), "empty", "25 1 0:1 / / rw - ext4 /dev/vda rw\n")
	if _, err := open(empty, "x"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("nothing mounted: %v", err)
	}
	info, _ := fakeV2(t, "cpu pids")
	if _, err := open(info, "x"); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "memory") {
		t.Errorf("no memory controller: %v", err)
	}
}

func TestDetectV1(t *testing.T) {
	mounts := parseMounts([]byte(`31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:3 - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 / /sys/fs/cgroup/mem\040ory rw - cgroup cgroup rw,memory
35 30 0:31 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
36 30 0:32 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
37 30 0:33 / / rw - ext4 /dev/vda rw
`))
	l, err := detect(mounts, "glovebox")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/sys/fs/cgroup/mem ory/glovebox/m", "/sys/fs/cgroup/cpu,cpuacct/glovebox/m", "/sys/fs/cgroup/pids/glovebox/m"}
	if got := l.dirs("m"); l.version() != 1 || strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("version %d, %q", l.version(), got)
	}
}

// real opens a parent on this host.
func real(t *testing.T) *Parent {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	p, err := Open("glovebox-test/" + strconv.Itoa(os.Getpid()))
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestReal: a process that joins is measured, cannot take more memory than
// allowed, and ends with its group.
func TestReal(t *testing.T) {
	p := real(t)
	g := p.Group("m")
	if err := g.Create(Limits{MemoryBytes: 32 << 20, MilliCPUs: 500, Tasks: 20}); err != nil {
		t.Fatal(err)
	}
	if !g.Exists() {
		t.Error("it does not exist")
	}
	join := func(script string) *exec.Cmd {
		cmd := exec.Command("/bin/sh", "-c", script)
		if p.Version() == 2 {
			dir, err := g.Dir()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { dir.Close() })
			cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
			return cmd
		}
		files, err := g.Procs()
		if err != nil {
			t.Fatal(err)
		}
		enter := ""
		for i, f := range files {
			t.Cleanup(func() { f.Close() })
			enter += "echo 0 >&" + strconv.Itoa(3+i) + "; "
		}
		cmd.Args[2] = enter + script
		cmd.ExtraFiles = files
		return cmd
	}
	// tail keeps all of a line in memory.
	if err := join("head -c 200000000 /dev/zero | tail -n 1 >/dev/null").Run(); err != nil {
		t.Logf("the shell: %v", err)
	}
	u, err := g.Usage()
	if err != nil || u.OOMKills < 1 || u.CPU <= 0 {
		t.Errorf("after taking too much memory: %+v, %v", u, err)
	}
	cmd := join("sleep 1000 & sleep 1000 & echo ready; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if pids := g.PIDs(); len(pids) != 3 {
		t.Errorf("processes: %v", pids)
	}
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := g.Remove(ctx); err != nil {
		t.Error(err)
	}
	if err := <-waited; err == nil {
		t.Error("the processes ended by themselves")
	}
	if err := g.Remove(ctx); err != nil || g.Exists() {
		t.Errorf("remove what is gone: %v", err)
	}
}

// TestRealV2Empty tries what can be tried on a version 2 hierarchy without
// controllers, beside version 1: being born in a group, and its removal.
func TestRealV2Empty(t *testing.T) {
	const mount = "/sys/fs/cgroup/unified"
	if _, err := os.Stat(mount + "/cgroup.procs"); err != nil || os.Getuid() != 0 {
		t.Skip("no version 2 hierarchy there, or not root")
	}
	p := &Parent{&v2{mount: mount, path: "glovebox-test-" + strconv.Itoa(os.Getpid())}}
	if err := os.Mkdir(p.dirs("")[0], 0o755); err != nil {
		t.Skip(err)
	}
	defer p.Remove(context.Background())
	g := p.Group("m")
	if err := g.Create(Limits{}); err != nil {
		t.Fatal(err)
	}
	dir, err := g.Dir()
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if pids := g.PIDs(); len(pids) != 1 || pids[0] != cmd.Process.Pid {
		t.Errorf("processes %v, want %d", pids, cmd.Process.Pid)
	}
	go cmd.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := g.Remove(ctx); err != nil {
		t.Error(err)
	}
}
