// Package guesttest runs the real agent on this host, as process 1 of
// namespaces of its own, for tests of what talks to it.
package guesttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

const initEnv = "GLOVEBOX_GUESTTEST_ROOT"

// Main is to be called first in TestMain: in a child that Start made it
// becomes the agent and does not return. Else it builds the agent, runs the
// tests and returns their exit code.
func Main(m *testing.M) int {
	if root := os.Getenv(initEnv); root != "" {
		fmt.Fprintln(os.Stderr, "guesttest:", becomeAgent(root))
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "guesttest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	agentBinary = filepath.Join(dir, "agent")
	build := exec.Command("go", "build", "-trimpath", "-o", agentBinary, "github.com/glovebox-dev/glovebox/cmd/glovebox-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the agent: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if err := removeGroups(); err != nil {
		fmt.Fprintln(os.Stderr, "remove the agents' control groups:", err)
		return 1
	}
	return code
}

var agentBinary string

// Guest is a running agent.
type Guest struct {
	PID    int // of the agent, on the host
	cmd    *exec.Cmd
	thread chan func() // runs functions in the guest's network namespace
	wait   sync.WaitGroup
}

// Start starts an agent over a copy-on-write view of this host's files, with
// a writable layer of upperMiB, and ends it with the test. It skips the test
// where namespaces cannot be made.
func Start(t testing.TB, upperMiB int) *Guest {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to make namespaces")
	}
	root := t.TempDir()
	g := &Guest{thread: make(chan func())}
	up := make(chan error)
	g.wait.Add(1)
	go g.netThread(up)
	if err := <-up; err != nil {
		t.Skipf("needs a network namespace: %v", err)
	}
	g.cmd = exec.Command("/proc/self/exe")
	g.cmd.Env = []string{initEnv + "=" + root, fmt.Sprintf("%s_UP=%d", initEnv, upperMiB), initEnv + "_AGENT=" + agentBinary}
	g.cmd.Stderr = os.Stderr
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	g.do(func() { up0(g.cmd, t) })
	g.PID = g.cmd.Process.Pid
	t.Cleanup(g.stop)
	return g
}

func up0(c *exec.Cmd, t testing.TB) {
	if err := c.Start(); err != nil {
		t.Errorf("start the agent: %v", err)
	}
}

func (g *Guest) stop() {
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	close(g.thread)
	g.wait.Wait()
}

// netThread is a thread in a network namespace with both ends' addresses.
func (g *Guest) netThread(up chan<- error) {
	defer g.wait.Done()
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	err := unix.Unshare(unix.CLONE_NEWNET)
	if err == nil {
		err = addresses()
	}
	up <- err
	if err != nil {
		return
	}
	for f := range g.thread {
		f()
	}
}

func (g *Guest) do(f func()) {
	done := make(chan struct{})
	g.thread <- func() { f(); close(done) }
	<-done
}

// addresses sets the loopback device up with both addresses of a cable.
func addresses() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	for name, ip := range map[string][4]byte{"lo": {127, 0, 0, 1}, "lo:1": wire.GatewayIP, "lo:2": wire.GuestIP} {
		r, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := r.SetInet4Addr(ip[:]); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(s, unix.SIOCSIFADDR, r); err != nil {
			return fmt.Errorf("address of %s: %w", name, err)
		}
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r); err != nil {
			return fmt.Errorf("set %s up: %w", name, err)
		}
	}
	return nil
}

// Dial connects to the agent from the gateway's address.
func (g *Guest) Dial(ctx context.Context) (net.Conn, error) { return g.DialFrom(ctx, wire.GatewayIP) }

// DialFrom connects to the agent from another address.
func (g *Guest) DialFrom(ctx context.Context, from [4]byte) (nc net.Conn, err error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from[:]}}
	to := net.TCPAddr{IP: wire.GuestIP[:], Port: wire.AgentPort}
	g.do(func() { nc, err = d.DialContext(ctx, "tcp4", to.String()) })
	return nc, err
}

// becomeAgent makes a bare machine's root of root and executes the agent.
func becomeAgent(root string) error {
	at := func(p string) string { return filepath.Join(root, p) }
	steps := []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""},
		{"none", root, "tmpfs", 0, ""},
		{"/", at("l0"), "", unix.MS_BIND, ""},
		{"none", at("l1"), "tmpfs", 0, ""},
		{"none", at("up"), "tmpfs", 0, "size=" + os.Getenv(initEnv+"_UP") + "m"},
		{"proc", at("proc"), "proc", 0, ""},
		{"none", at("sys"), "tmpfs", 0, ""},
		{"none", at("dev"), "tmpfs", 0, "mode=755"},
		{"none", at("dev/pts"), "devpts", 0, "newinstance,ptmxmode=0666,mode=620"},
		{"none", at("dev/shm"), "tmpfs", 0, "mode=1777"},
	}
	for _, s := range steps {
		if s.target != "/" {
			if err := os.MkdirAll(s.target, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount(s.source, s.target, s.kind, s.flags, s.data); err != nil {
			return fmt.Errorf("mount %s: %w", s.target, err)
		}
	}
	unix.Umask(0)
	for name, minor := range map[string]int{"null": 3, "zero": 5, "full": 7, "urandom": 9} {
		if err := unix.Mknod(at("dev/"+name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, uint32(minor)))); err != nil {
			return err
		}
	}
	if err := unix.Mknod(at("dev/tty"), unix.S_IFCHR|0o666, int(unix.Mkdev(5, 0))); err != nil {
		return err
	}
	err := errors.Join(os.Symlink("pts/ptmx", at("dev/ptmx")), os.Mkdir(at("newroot"), 0o755), os.Mkdir(at("old"), 0o755),
		os.WriteFile(at("l1/layer-one"), []byte("topmost"), 0o644))
	if err != nil {
		return err
	}
	b, err := os.ReadFile(os.Getenv(initEnv + "_AGENT"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(at("agent"), b, 0o755); err != nil {
		return err
	}
	if err := unix.PivotRoot(root, at("old")); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := errors.Join(os.Chdir("/"), unix.Unmount("/old", unix.MNT_DETACH)); err != nil {
		return err
	}
	return unix.Exec("/agent", []string{"/agent"}, nil)
}

// removeGroups removes the control groups that ended agents have left in the
// hierarchies that they share with this host.
func removeGroups() error {
	if os.Getuid() != 0 {
		return nil
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		result <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return nil // then Start could not make one either
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			dir, err := os.MkdirTemp("", "guesttest")
			if err != nil {
				return err
			}
			defer os.Remove(dir)
			for _, h := range [][2]string{{"cgroup2", ""}, {"cgroup", "none,name=glovebox"}} {
				if unix.Mount("none", dir, h[0], 0, h[1]) != nil {
					continue
				}
				err := removeTree(dir)
				if err := errors.Join(err, unix.Unmount(dir, 0)); err != nil {
					return err
				}
			}
			return nil
		}()
	}()
	return <-result
}

// removeTree removes the groups of agents whose processes are gone; the last
// of them may take a moment.
func removeTree(dir string) error {
	deadline := time.Now().Add(5 * time.Second)
	for {
		left := ""
		groups, err := filepath.Glob(filepath.Join(dir, "glovebox-*"))
		if err != nil {
			return err
		}
		for _, g := range groups {
			inner, _ := filepath.Glob(filepath.Join(g, "c*"))
			for _, i := range append(inner, g) {
				if st, err := os.Stat(i); err == nil && st.IsDir() && unix.Rmdir(i) != nil && strings.Contains(i, "glovebox-") {
					left = i
				}
			}
		}
		if left == "" || time.Now().After(deadline) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Listen listens inside the guest's network; the test closes it.
func (g *Guest) Listen(t testing.TB, addr string) (l net.Listener) {
	t.Helper()
	var err error
	g.do(func() { l, err = net.Listen("tcp", addr) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}
