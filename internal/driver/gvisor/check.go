package gvisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

const (
	// minKernelMajor and minKernelMinor name the oldest Linux with what the driver uses: pidfds that
	// can be polled (5.3) and CLONE_INTO_CGROUP (5.7).
	minKernelMajor, minKernelMinor = 5, 7
	// lowDisk and lowMemory are where Check warns, in bytes.
	lowDisk   = 5 << 30
	lowMemory = 1 << 30
)

// probe is what Check looks at.
type probe struct {
	proc    string // /proc
	release string // uname -r
	machine string // uname -m
	uid     int
	data    string
	exe     *os.File
	cgroups error
}

// Check implements driver.Driver.
func (d *Driver) Check(context.Context) []driver.Problem {
	var u unix.Utsname
	_ = unix.Uname(&u) // cannot fail with a valid buffer
	p := probe{
		proc: "/proc", release: unix.ByteSliceToString(u.Release[:]), machine: unix.ByteSliceToString(u.Machine[:]),
		uid: os.Geteuid(), data: d.opt.DataDir, exe: d.exe, cgroups: d.cgroupErr,
	}
	problems := p.check()
	for i := range problems {
		if problems[i].Title == cgroupTitle && d.opt.Unlimited {
			problems[i].Fatal = false
		}
	}
	return problems
}

const cgroupTitle = "Machines cannot be limited"

func (p probe) check() (found []driver.Problem) {
	add := func(fatal bool, title, remedy string) {
		found = append(found, driver.Problem{Title: title, Remedy: remedy, Fatal: fatal})
	}
	if p.machine != "x86_64" && p.machine != "aarch64" {
		add(true, "The processor is of the kind "+p.machine, "Use a machine with an x86-64 or ARM64 processor.")
	}
	if !p.kernelNewEnough() {
		add(true, fmt.Sprintf("The kernel is Linux %s, which is too old", p.release),
			fmt.Sprintf("Use Linux %d.%d or newer.", minKernelMajor, minKernelMinor))
	}
	if p.uid != 0 {
		add(true, "Not running as root", "Run as root (sudo): a sandbox is given namespaces, a root and a user of its own.")
	}
	if p.cgroups != nil {
		add(true, cgroupTitle, p.cgroups.Error())
	}
	p.checkKernel(add)
	p.checkBinary(add)
	p.checkRoom(add)
	return found
}

func (p probe) kernelNewEnough() bool {
	var major, minor int
	if n, _ := fmt.Sscanf(p.release, "%d.%d", &major, &minor); n != 2 {
		return true // unheard of, but not known to be old
	}
	return major > minKernelMajor || (major == minKernelMajor && minor >= minKernelMinor)
}

// setting reads a number from /proc/sys; absent is -1.
func (p probe) setting(name string) int {
	b, err := os.ReadFile(filepath.Join(p.proc, "sys", name))
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return -1
	}
	return n
}

func (p probe) checkKernel(add func(bool, string, string)) {
	if p.setting("kernel/yama/ptrace_scope") == 3 {
		add(true, "The kernel forbids ptrace altogether (kernel.yama.ptrace_scope is 3)",
			"Set kernel.yama.ptrace_scope to 2 or less in /etc/sysctl.d and reboot: 3 cannot be undone while the system runs.")
	}
	status, err := os.ReadFile(filepath.Join(p.proc, "self/status"))
	if err == nil && !strings.Contains(string(status), "\nSeccomp:") {
		add(true, "The kernel has no seccomp filters", "Use a kernel with CONFIG_SECCOMP_FILTER.")
	}
	if n := p.setting("kernel/pid_max"); n >= 0 && n < 8192 {
		add(false, fmt.Sprintf("The system allows %d processes only", n), "sysctl -w kernel.pid_max=32768, or more.")
	}
	if n := p.setting("vm/max_map_count"); n >= 0 && n < 65530 {
		add(false, fmt.Sprintf("A process may have %d memory mappings only", n), "sysctl -w vm.max_map_count=262144.")
	}
}

func (p probe) checkBinary(add func(bool, string, string)) {
	var st unix.Stat_t
	if p.exe != nil && unix.Fstat(int(p.exe.Fd()), &st) == nil && st.Mode&0o001 == 0 {
		add(true, "Not everybody may execute the glovebox binary", "chmod a+x it: sandboxes run as another user.")
	}
	var fs unix.Statfs_t
	if p.exe != nil && unix.Fstatfs(int(p.exe.Fd()), &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0 {
		add(true, "The glovebox binary is on a file system mounted noexec", "Put it elsewhere, such as /usr/local/bin.")
	}
}

func (p probe) checkRoom(add func(bool, string, string)) {
	var fs unix.Statfs_t
	if err := unix.Statfs(p.data, &fs); err != nil {
		add(true, fmt.Sprintf("The data directory cannot be used: %v", err), "Make it, or name another with --data-dir.")
	} else if free := int64(fs.Bavail) * fs.Bsize; free < lowDisk {
		add(false, fmt.Sprintf("%d MiB are free in %s", free>>20, p.data), "Free some space: images, snapshots and the disks of sandboxes are there.")
	}
	b, err := os.ReadFile(filepath.Join(p.proc, "meminfo"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "MemAvailable:" {
			continue
		}
		if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil && kib<<10 < lowMemory {
			add(false, fmt.Sprintf("%d MiB of memory are available", kib>>10), "Free some, or make sandboxes with less memory.")
		}
	}
}
