package main

import (
	"syscall"
	"time"
)

// cgroups knows which processes belong to which command. Membership in a
// control group is inherited by every child and survives new sessions and the
// death of parents, and the hierarchy is mounted nowhere, so the user has no way
// out. Root has one, a mount in a user namespace; what leaves ends with the
// sandbox. A group is used again once its processes are gone.
type cgroups struct {
	dir    int // holds the groups
	free   []*cgroup
	linger []*cgroup // of finished commands; processes may be left in them
	made   int
	buf    [512]byte
}

// cgroup is one group. Its list is opened anew for each reading: version 1 of
// Linux keeps the list of an open file for a second.
type cgroup struct {
	of    *cgroups
	name  string // below of.dir
	procs int    // cgroup.procs, open for children that enter
	held  int    // killings that are at work on it
}

// mountHierarchy mounts the hierarchy that serves best. gVisor has version 1,
// and its children leave a hierarchy without controllers, so there it is that
// of the pids controller, which can also keep a group from forking; that it is
// gVisor is seen by a controller that only it has. On Linux it is version 2,
// which kills a group at once, or else an empty hierarchy of version 1.
func mountHierarchy(at string) error {
	if syscall.Mount("none", at, "cgroup", 0, "job") == nil {
		if err := syscall.Unmount(at, syscall.MNT_DETACH); err != nil {
			return err
		}
		return syscall.Mount("none", at, "cgroup", 0, "pids")
	}
	if syscall.Mount("none", at, "cgroup2", 0, "") == nil {
		return nil
	}
	return syscall.Mount("none", at, "cgroup", 0, "none,name=glovebox")
}

// mount mounts the hierarchy on the empty directory at and hides it again.
func (g *cgroups) mount(at string) error {
	err := mountHierarchy(at)
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

// scanLinger is how many groups of finished commands are looked at in a turn.
const scanLinger = 4

// flush looks for groups that are empty by now; it runs after the end of a
// command was sent, so that no command waits for it.
func (g *cgroups) flush() {
	for range min(scanLinger, len(g.linger)) {
		c := g.linger[0]
		g.linger = g.linger[1:]
		if c.held == 0 && c.empty() {
			g.free = append(g.free, c)
		} else {
			g.linger = append(g.linger, c)
		}
	}
}

// get takes an empty group.
func (g *cgroups) get() (*cgroup, error) {
	if len(g.free) == 0 {
		g.flush()
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
	c := &cgroup{of: g, name: name}
	fd, err := syscall.Openat(g.dir, name+"/cgroup.procs", syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, opErr("open a control group", err)
	}
	c.procs = fd
	return c, nil
}

// put gives a group back; processes may still be in it.
func (g *cgroups) put(c *cgroup) {
	if c != nil {
		g.linger = append(g.linger, c)
	}
}

// set writes to one of the group's files, where there is such a file.
func (c *cgroup) set(file, value string) {
	fd, err := syscall.Openat(c.of.dir, c.name+"/"+file, syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err == nil {
		_, _ = syscall.Write(fd, []byte(value))
		_ = syscall.Close(fd)
	}
}

// hold keeps the group's processes from making new ones, or kills them all,
// as the hierarchy can. Where it can do neither, killing takes more passes.
func (c *cgroup) hold() {
	c.held++
	c.set("pids.max", "0")
	c.set("cgroup.kill", "1")
}

// release ends hold; the group may be used again.
func (c *cgroup) release() {
	if c.held--; c.held == 0 {
		c.set("pids.max", "4194304") // the most there can be; gVisor does not take "max"
	}
}

func (c *cgroup) empty() bool {
	pids, err := c.pids(c.of.buf[:])
	return err == nil && len(pids) == 0
}

// pids are the processes in the group now.
func (c *cgroup) pids(buf []byte) ([]int, error) {
	fd, err := syscall.Openat(c.of.dir, c.name+"/cgroup.procs", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	var pids []int
	for pid := 0; ; {
		n, err := syscall.Read(fd, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return pids, err
		}
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
