package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func checkKernel(context.Context) []finding {
	if runtime.GOOS != "linux" {
		return fatal("kernel", runtime.GOOS+" cannot run sandboxes", "use a Linux machine; this one can still be a client: set $"+envURL)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fatal("kernel", "uname: "+err.Error(), "use a Linux machine")
	}
	release := unix.ByteSliceToString(u.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return warning("kernel", "version "+release+" cannot be read", "use Linux 5.7 or newer")
	}
	if major < 5 || (major == 5 && minor < 7) {
		return fatal("kernel", "Linux "+release+" is too old", "use Linux 5.7 or newer")
	}
	return ok("kernel", "Linux "+release+" "+unix.ByteSliceToString(u.Machine[:]))
}

func checkPrivileges(context.Context) []finding {
	if os.Geteuid() != 0 {
		return fatal("privileges", "running as a user without privileges", "run it as root: sudo glovebox doctor")
	}
	caps := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&caps, &data[0]); err != nil {
		return warning("privileges", "capget: "+err.Error(), "run it as root on the machine itself")
	}
	var missing []string
	for name, bit := range map[string]uint{"CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN, "CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE, "CAP_SYS_CHROOT": unix.CAP_SYS_CHROOT} {
		if data[bit/32].Effective&(1<<(bit%32)) == 0 {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fatal("privileges", "root without "+strings.Join(missing, ", "), "in a container, run it with --privileged")
	}
	return ok("privileges", "root")
}

// checkCgroups: limits need the memory, cpu and pids controllers, of v2 or v1.
func checkCgroups(context.Context) []finding {
	const root = "/sys/fs/cgroup"
	want := []string{"cpu", "memory", "pids"}
	if b, err := os.ReadFile(filepath.Join(root, "cgroup.controllers")); err == nil {
		have := strings.Fields(string(b))
		if missing := without(want, have); len(missing) > 0 {
			return fatal("cgroups", "version 2 without the controllers "+strings.Join(missing, ", "),
				"enable them in the parent's cgroup.subtree_control, or delegate them (systemd: Delegate=yes)")
		}
		return ok("cgroups", "version 2: "+strings.Join(want, ", "))
	}
	var have []string
	for _, c := range want {
		if fi, err := os.Stat(filepath.Join(root, c)); err == nil && fi.IsDir() {
			have = append(have, c)
		}
	}
	if missing := without(want, have); len(missing) > 0 {
		return fatal("cgroups", "version 1 without the controllers "+strings.Join(missing, ", "),
			"mount them below "+root+", or boot with systemd.unified_cgroup_hierarchy=1")
	}
	return ok("cgroups", "version 1: "+strings.Join(want, ", "))
}

func without(want, have []string) []string {
	var missing []string
	for _, w := range want {
		found := false
		for _, h := range have {
			found = found || h == w
		}
		if !found {
			missing = append(missing, w)
		}
	}
	return missing
}

// checkPtrace: the sandbox's kernel attaches to its own children, which the
// Yama module can forbid even to root.
func checkPtrace(context.Context) []finding {
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err != nil {
		return ok("ptrace", "not restricted")
	}
	switch scope := strings.TrimSpace(string(b)); scope {
	case "0", "1", "2":
		return ok("ptrace", "scope "+scope)
	default:
		return fatal("ptrace", "scope "+scope+" forbids it to everyone",
			"set kernel.yama.ptrace_scope=1 in /etc/sysctl.d and restart the machine")
	}
}

const (
	diskFatal   = 1 << 30
	diskWarning = 10 << 30
)

func (a *app) checkDisk(context.Context) []finding {
	dir := a.dataDir
	for {
		if _, err := os.Stat(dir); err == nil || dir == "/" || dir == "." {
			break
		}
		dir = filepath.Dir(dir)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fatal("disk", "statfs "+dir+": "+err.Error(), "name a --data-dir on a disk of this machine")
	}
	free := int64(st.Bavail) * st.Bsize
	text := size(free) + " free for " + a.dataDir
	switch {
	case free < diskFatal:
		return fatal("disk", text, "free at least 1 GiB, or name another --data-dir")
	case free < diskWarning:
		return warning("disk", text, "free 10 GiB, or name another --data-dir: sandboxes get ENOSPC when it is full")
	}
	return ok("disk", text)
}

// checkDNS asks the resolver that sandboxes will use for the root's name
// servers, a question that every resolver can answer.
func (a *app) checkDNS(ctx context.Context) []finding {
	servers := strings.Fields(strings.ReplaceAll(a.getenv(envDNS), ",", " "))
	source := "$" + envDNS
	if len(servers) == 0 {
		source = "/etc/resolv.conf"
		servers = nameservers(source)
	}
	if len(servers) == 0 {
		return warning("dns", "no name server in "+source, "set $"+envDNS+" to the address of one; sandboxes cannot resolve names without")
	}
	server := servers[0]
	if _, _, err := net.SplitHostPort(server); err != nil {
		server = net.JoinHostPort(server, "53")
	}
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, server)
	}}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	// Whatever it answers, it answers; only silence counts against it.
	if _, err := resolver.LookupNS(ctx, "."); err != nil && !answered(err) {
		return warning("dns", fmt.Sprintf("name server %s (%s) does not answer", servers[0], source),
			"set $"+envDNS+" to one that does; sandboxes cannot resolve names without")
	}
	return ok("dns", fmt.Sprintf("name server %s (%s)", servers[0], source))
}

func answered(err error) bool {
	e, ok := errors.AsType[*net.DNSError](err)
	return ok && !e.IsTimeout && (e.IsNotFound || strings.Contains(e.Err, "server misbehaving"))
}

func nameservers(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var servers []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) >= 2 && fields[0] == "nameserver" {
			servers = append(servers, fields[1])
		}
	}
	return servers
}

// checkPort: free, or held by a server that answers.
func (a *app) checkPort(listen string) check {
	return func(ctx context.Context) []finding {
		if _, err := os.Stat(a.socketPath()); err == nil {
			if conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", a.socketPath()); err == nil {
				conn.Close()
				return ok("port", "a server holds "+a.dataDir)
			}
		}
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", listen)
		if err != nil {
			return warning("port", err.Error(), "end what listens there, or name another --listen")
		}
		l.Close()
		return ok("port", listen+" is free")
	}
}
