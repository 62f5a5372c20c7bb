package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// v2 has one hierarchy. Its rule: a group that passes controllers on to the
// groups below it holds no processes itself (but for the real root).
//
// The parent is made below the root that this process sees, as Docker does it
// without systemd: groups there belong to no unit, so that stopping the
// server's unit does not end them. In a container that root is a group like
// any other and usually holds the container's processes; then these are moved
// into a group of their own beside the parent.
type v2 struct {
	mount string
	path  string
}

// leaf is the group into which the processes of a container are moved.
const leaf = "glovebox-server"

func (v *v2) version() int { return 2 }

func (v *v2) dir(name string) string { return filepath.Join(v.mount, v.path, name) }

func (v *v2) dirs(name string) []string { return []string{v.dir(name)} }

// prepare enables the controllers from the root down to the parent.
func (v *v2) prepare() error {
	dir := v.mount
	for _, part := range append(strings.Split(filepath.Clean(v.path), "/"), "") {
		err := v.enable(dir)
		if errors.Is(err, unix.EBUSY) && dir == v.mount {
			if err = v.makeRoom(dir); err == nil {
				err = v.enable(dir)
			}
		}
		if err != nil {
			return fmt.Errorf("%w: %w: run as root; under systemd with Delegate=yes, in a container with --privileged --cgroupns=private", ErrUnavailable, err)
		}
		dir = filepath.Join(dir, part)
	}
	return nil
}

func (v *v2) enable(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	have := strings.Fields(string(b))
	var add []string
	for _, c := range needed {
		if !slices.Contains(have, c) {
			add = append(add, "+"+c)
		}
	}
	if len(add) == 0 {
		return nil
	}
	return write(dir, "cgroup.subtree_control", strings.Join(add, " "))
}

func (v *v2) makeRoom(dir string) error {
	to := filepath.Join(dir, leaf)
	if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for _, pid := range readPIDs(dir) {
		if err := write(to, "cgroup.procs", strconv.Itoa(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

func (v *v2) limit(name string, l Limits) error {
	d := v.dir(name)
	if l.MemoryBytes > 0 {
		if err := write(d, "memory.max", strconv.FormatInt(l.MemoryBytes, 10)); err != nil {
			return err
		}
		// Absent without swap in the kernel.
		if err := write(d, "memory.swap.max", "0"); err != nil && !notThere(err) {
			return err
		}
	}
	if l.MilliCPUs > 0 {
		if err := write(d, "cpu.max", fmt.Sprintf("%d %d", l.MilliCPUs*Period/1000, Period)); err != nil {
			return err
		}
	}
	if l.Tasks > 0 {
		return write(d, "pids.max", strconv.FormatInt(l.Tasks, 10))
	}
	return nil
}

func (v *v2) usage(name string) (u Usage, err error) {
	d := v.dir(name)
	cpu, err := readKeys(d, "cpu.stat")
	if err != nil {
		return u, err
	}
	used, err := readInt(d, "memory.current")
	if err != nil {
		return u, err
	}
	stat, err := readKeys(d, "memory.stat")
	if err != nil {
		return u, err
	}
	events, err := readKeys(d, "memory.events")
	if err != nil {
		return u, err
	}
	return Usage{
		CPU:         time.Duration(cpu["usage_usec"]) * time.Microsecond,
		MemoryBytes: max(0, used-stat["inactive_file"]),
		OOMKills:    events["oom_kill"],
	}, nil
}

func (v *v2) kill(name string) {
	d := v.dir(name)
	// All at once, forks included, since Linux 5.14.
	if err := write(d, "cgroup.kill", "1"); err != nil {
		killAll(d)
	}
}
