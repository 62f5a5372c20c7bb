package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups knows which processes belong to which command. Membership in a
// control group is inherited by every child and survives new sessions and the
// death of parents, and the user has no way out: the hierarchy is mounted
// nowhere. A group is used again once its processes are gone.
type cgroups struct {
	dir    int // holds the groups
	free   []*cgroup
	linger []*cgroup // of finished commands; processes may be left in them
	made   int
}

// cgroup is one group; procs is its cgroup.procs, open for both.
type cgroup struct {
	procs int
	held  int // killings that are at work on it
}

// mount mounts the hierarchy on the empty directory at and hides it again.
// One without controllers is enough; where the kernel has no version 1, the
// unified hierarchy serves as well.
func (g *cgroups) mount(at string) error {
	err := syscall.Mount("none", at, "cgroup", 0, "none,name=glovebox")
	if err != nil {
		err = syscall.Mount("none", at, "cgroup2", 0, "")
	}
	if err != nil {
		return opErr("mount the control groups", err)
	}
	g.dir, err = syscall.Open(at, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if e := syscall.Unmount(at, syscall.MNT_DETACH); err == nil {
		err = e
	}
	if err != nil {
		return opErr("open the control groups", err)
	}
	// A name of its own, for where the kernel is shared with others.
	name := "glovebox-" + itoa(int(time.Now().UnixNano()))
	top := g.dir
	if err = syscall.Mkdirat(top, name, 0o755); err == nil {
		g.dir, err = syscall.Openat(top, name, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	}
	_ = syscall.Close(top)
	if err != nil {
		return opErr("make the control groups", err)
	}
	return nil
}

// scanLinger is how many groups get looks through before it makes a new one.
const scanLinger = 4

// get takes an empty group.
func (g *cgroups) get() (*cgroup, error) {
	var buf [32]byte
	for range min(scanLinger, len(g.linger)) {
		c := g.linger[0]
		g.linger = g.linger[1:]
		if n, err := unix.Pread(c.procs, buf[:], 0); err == nil && n == 0 && c.held == 0 {
			return c, nil
		}
		g.linger = append(g.linger, c)
	}
	if n := len(g.free); n > 0 {
		c := g.free[n-1]
		g.free = g.free[:n-1]
		return c, nil
	}
	name := "c" + itoa(g.made)
	g.made++
	if err := syscall.Mkdirat(g.dir, name, 0o755); err != nil {
		return nil, opErr("make a control group", err)
	}
	fd, err := syscall.Openat(g.dir, name+"/cgroup.procs", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, opErr("open a control group", err)
	}
	return &cgroup{procs: fd}, nil
}

// put gives a group back; processes may still be in it.
func (g *cgroups) put(c *cgroup) {
	if c != nil {
		g.linger = append(g.linger, c)
	}
}

// pids are the processes in the group now.
func (c *cgroup) pids(buf []byte) ([]int, error) {
	var pids []int
	pid := 0
	for off := int64(0); ; {
		n, err := unix.Pread(c.procs, buf, off)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return pids, err
		}
		if n == 0 {
			return pids, nil
		}
		off += int64(n)
		for _, b := range buf[:n] {
			if b >= '0' && b <= '9' {
				pid = 10*pid + int(b-'0')
				continue
			}
			if pid > 1 {
				pids = append(pids, pid)
			}
			pid = 0
		}
	}
}
