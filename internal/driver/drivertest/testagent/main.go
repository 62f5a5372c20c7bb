// Command testagent is the PID 1 of the conformance suite, and what the suite
// executes inside: it needs no file but itself.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 1 {
		serve()
	}
	cmd, ok := commands[os.Args[1]]
	if !ok {
		fmt.Println("testagent: unknown command", os.Args[1])
		os.Exit(2)
	}
	cmd(append(os.Args[2:], "", "", ""))
}

// serve is the agent: it answers lines on the agent's port.
func serve() {
	l, err := net.Listen("tcp4", "10.88.0.2:61000")
	if err != nil {
		fmt.Fprintln(os.Stderr, "testagent:", err)
		os.Exit(1)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			continue
		}
		go func() {
			defer c.Close()
			for lines := bufio.NewScanner(c); lines.Scan(); {
				answer(c, lines.Text())
			}
		}()
	}
}

func answer(w io.Writer, line string) {
	f := strings.Fields(line)
	switch {
	case len(f) == 0:
	case f[0] == "ping":
		fmt.Fprintln(w, "pong")
	case f[0] == "bytes": // N bytes back
		n, _ := strconv.Atoi(f[1])
		_, _ = w.Write(make([]byte, n))
	case f[0] == "exit":
		os.Exit(3)
	case f[0] == "panic":
		panic("the agent is unwell")
	case f[0] == "read":
		b, err := os.ReadFile(f[1])
		if err != nil {
			b = []byte(err.Error())
		}
		fmt.Fprintf(w, "%s\n", b)
	case f[0] == "assemble":
		fmt.Fprintln(w, errText(assemble(f[1])))
	}
}

func errText(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// assemble does in short what the agent does: an overlay of the layers that
// becomes the root.
func assemble(layers string) error {
	for _, d := range []string{"/up/u", "/up/w"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	if err := syscall.Mount("overlay", "/newroot", "overlay", 0, "lowerdir="+layers+",upperdir=/up/u,workdir=/up/w,userxattr"); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	if err := syscall.Mount("/proc", "/newroot/proc", "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if err := os.Mkdir("/newroot/.old", 0o700); err != nil {
		return err
	}
	if err := syscall.PivotRoot("/newroot", "/newroot/.old"); err != nil {
		return fmt.Errorf("pivot: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return syscall.Unmount("/.old", syscall.MNT_DETACH)
}

var commands = map[string]func(args []string){
	"true":   func([]string) {},
	"exit":   func(a []string) { n, _ := strconv.Atoi(a[0]); os.Exit(n) },
	"echo":   func(a []string) { fmt.Println(strings.TrimSpace(strings.Join(a, " "))) },
	"stderr": func(a []string) { fmt.Fprintln(os.Stderr, a[0]) },
	"uid":    func([]string) { fmt.Println(os.Getuid(), os.Getgid()) },
	"env": func([]string) {
		for _, e := range os.Environ() {
			fmt.Println(e)
		}
	},
	"cat": func(a []string) {
		b, err := os.ReadFile(a[0])
		fail(err)
		os.Stdout.Write(b)
	},
	"ls": func(a []string) {
		entries, err := os.ReadDir(a[0])
		fail(err)
		for _, e := range entries {
			fmt.Println(e.Name())
		}
	},
	"write": func(a []string) { fail(os.WriteFile(a[0], []byte(a[1]), 0o644)) },
	"mkdir": func(a []string) { fail(os.Mkdir(a[0], 0o755)) },
	"cpus": func([]string) {
		var set [1024]byte
		n, _, e := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, uintptr(len(set)), pointer(&set[0]))
		if e != 0 {
			fail(e)
		}
		cpus := 0
		for _, b := range set[:n] {
			for ; b != 0; b &= b - 1 {
				cpus++
			}
		}
		fmt.Println(cpus)
	},
	"sleep": func(a []string) { d, err := time.ParseDuration(a[0]); fail(err); time.Sleep(d) },
	"burn":  burn,
	"fill":  fill,
	"touch": touch,
	"hold":  func(a []string) { touch(a); select {} },
	"forks": forks,
	"tree":  tree,
	"connect": func(a []string) {
		c, err := net.DialTimeout(a[0], a[1], 5*time.Second)
		fail(err)
		c.Close()
		fmt.Println("connected")
	},
	"rlimits": func([]string) {
		for _, r := range []int{syscall.RLIMIT_NOFILE, 6 /* RLIMIT_NPROC */} {
			var l syscall.Rlimit
			fail(syscall.Getrlimit(r, &l))
			fmt.Println(l.Cur, l.Max)
		}
	},
	"mount": func(a []string) { fail(syscall.Mount("tmpfs", a[0], "tmpfs", 0, "")); fmt.Println("mounted") },
	"statfs": func(a []string) {
		var s syscall.Statfs_t
		fail(syscall.Statfs(a[0], &s))
		fmt.Println(int64(s.Blocks) * s.Bsize)
	},
}

func fail(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
