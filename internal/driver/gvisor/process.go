package gvisor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/specutils"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/glovebox-dev/glovebox/internal/cgroup"
)

// nobody is the user and group of every sandbox kernel.
const nobody = 65534

// Capabilities of the booting kernel: to make its root, to give up all the
// others in every set, and to trace its stub processes. It keeps the last.
const (
	capSetPCap   = 8
	capSysChroot = 18
	capSysPtrace = 19
	capSysAdmin  = 21
)

// process is a sandbox kernel, child of this server or not.
type process struct {
	pid   int
	start uint64 // clock ticks after the host's boot
	pidfd *os.File

	done   chan struct{} // closed when it has ended
	status syscall.WaitStatus
	known  bool // status is: it was our child
}

// launch is what a kernel gets at its start. The files stay the caller's.
type launch struct {
	dir        string // the machine's; only a name, to be seen by ps
	spec       *specs.Spec
	confs      specutils.GoferMountConfFlags
	cpus       int
	memory     int64
	images     []*os.File // the root, then those of erofs mounts
	filestores []*os.File
	control    *os.File // listening socket to be
	log        *os.File // standard error of the kernel
	console    *os.File // standard error of PID 1
	booted     *os.File // gets a byte when the kernel takes calls
	armed      *os.File // is closed when layers can be mounted
	lease      *os.File // ends when the server does
	group      *cgroup.Group
	v2         bool
}

// spawn starts a kernel. This takes the place of gVisor's own sandbox.New,
// which is made for a process that does nothing else: it gives this process's
// standard streams to the guest, changes flags of all descriptors, lets
// concurrent children inherit each other's sockets, and has no way to join a
// control group on version 1 but to move the caller.
func (d *Driver) spawn(l launch) (*process, error) {
	specFile, err := memFile("spec", l.spec)
	if err != nil {
		return nil, err
	}
	defer specFile.Close()
	cmd := &exec.Cmd{
		// By descriptor: the file may have been replaced, or lie where
		// nobody cannot look.
		Path: fmt.Sprintf("/proc/self/fd/%d", exeFD),
		Args: append([]string{kernelName}, d.flags...),
		// gVisor sets GOMAXPROCS itself; without this the runtime would open the
		// limits of the group that the server is in, and keep them.
		Env:    []string{"GODEBUG=containermaxprocs=0,updatemaxprocs=0"},
		Stdin:  d.null,
		Stdout: d.null,
		Stderr: l.log,
		Dir:    "/",

		ExtraFiles: []*os.File{d.exe, l.armed, l.lease},
	}
	give := func(name string, files ...*os.File) {
		for _, f := range files {
			cmd.Args = append(cmd.Args, fmt.Sprintf("--%s=%d", name, 3+len(cmd.ExtraFiles)))
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
	}
	cmd.Args = append(cmd.Args, "boot", "--bundle="+l.dir, "--apply-caps", "--setup-root",
		"--gofer-mount-confs="+l.confs.String(),
		"--cpu-num="+strconv.Itoa(l.cpus),
		"--total-memory="+strconv.FormatInt(l.memory, 10),
		"--total-host-memory="+strconv.FormatInt(l.memory, 10),
		"--product-name=Glovebox")
	give("io-fds", l.images...)
	give("gofer-filestore-fds", l.filestores...)
	give("controller-fd", l.control)
	give("spec-fd", specFile)
	give("start-sync-fd", l.booted)
	give("stdio-fds", d.null, d.null, l.console)
	pidfd := -1
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:      true, // no signal of the server's terminal
		Cloneflags:  unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
		AmbientCaps: []uintptr{capSysAdmin, capSysChroot, capSetPCap, capSysPtrace},
		PidFD:       &pidfd,
	}
	closeGroup, err := l.enterGroup(cmd)
	if err != nil {
		return nil, err
	}
	defer closeGroup()
	cmd.Args = append(cmd.Args, containerID)
	if err := cmd.Start(); err != nil {
		return nil, d.explainStart(err)
	}
	p, err := newProcess(cmd.Process.Pid, pidfd, true)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	_ = cmd.Process.Release() // from here on it is ours by pidfd
	return p, nil
}

// enterGroup makes cmd start in its control group: born in it on version 2,
// joining it as its first act on version 1. The files it opens are to be
// closed by the function it returns, once cmd runs.
func (l launch) enterGroup(cmd *exec.Cmd) (func(), error) {
	if l.group == nil {
		return func() {}, nil
	}
	if l.v2 {
		dir, err := l.group.Dir()
		if err != nil {
			return nil, err
		}
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
		return func() { dir.Close() }, nil
	}
	procs, err := l.group.Procs()
	if err != nil {
		return nil, err
	}
	var fds []string
	for _, f := range procs {
		fds = append(fds, strconv.Itoa(3+len(cmd.ExtraFiles)))
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	cmd.Env = append(cmd.Env, joinVar+"="+strings.Join(fds, " "))
	return func() {
		for _, f := range procs {
			f.Close()
		}
	}, nil
}

// explainStart adds what is usually behind an error of exec.
func (d *Driver) explainStart(err error) error {
	var st unix.Stat_t
	if e := unix.Fstat(int(d.exe.Fd()), &st); e == nil && st.Mode&0o001 == 0 {
		return fmt.Errorf("%w (everybody must be allowed to execute the binary: chmod a+x)", err)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w (run as root)", err)
	}
	return err
}

// newProcess watches a process; it owns pidfd.
func newProcess(pid, pidfd int, child bool) (*process, error) {
	// With O_NONBLOCK Go's poller waits for it, and no thread does.
	if err := unix.SetNonblock(pidfd, true); err != nil {
		unix.Close(pidfd)
		return nil, fmt.Errorf("pidfd of %d: %w", pid, err)
	}
	p := &process{pid: pid, pidfd: os.NewFile(uintptr(pidfd), "pidfd"), done: make(chan struct{}), known: child}
	p.start, _ = startTime(pid) // zero if it has ended already
	conn, err := p.pidfd.SyscallConn()
	if err != nil {
		p.pidfd.Close()
		return nil, fmt.Errorf("pidfd of %d: %w", pid, err)
	}
	go func() {
		defer close(p.done)
		_ = conn.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n == 1 || (err != nil && err != unix.EINTR)
		})
		if child {
			p.reap()
		}
		p.pidfd.Close()
	}()
	return p, nil
}

func (p *process) reap() {
	for {
		_, err := syscall.Wait4(p.pid, &p.status, 0, nil)
		if err != syscall.EINTR {
			return
		}
	}
}

// kill ends the process at once; as first process of its PID namespace it
// takes all others in it along. It does not wait.
func (p *process) kill() {
	conn, err := p.pidfd.SyscallConn()
	if err != nil {
		return // closed: it has ended
	}
	_ = conn.Control(func(fd uintptr) {
		_ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) // ended already
	})
}

// startTime tells, in clock ticks after the host's boot, when a process was
// started: together with the PID that names it for good. See proc_pid_stat(5).
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold anything, so count from its end.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: too few fields", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// memFile is v as JSON in a memory file, at its beginning.
func memFile(name string, v any) (*os.File, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(b); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("write memory file: %w", err)
	}
	return f, nil
}
