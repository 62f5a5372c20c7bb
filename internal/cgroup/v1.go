package cgroup

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// v1 has a hierarchy, and so a directory, per controller.
type v1 struct {
	controllers map[string]string // controller → mount
	path        string
}

func (v *v1) version() int { return 1 }

func (v *v1) dir(controller, name string) string {
	return filepath.Join(v.controllers[controller], v.path, name)
}

// dirs: the memory group comes first, so that a process that joins in this
// order is charged from its first moment; and it goes first.
func (v *v1) dirs(name string) (dirs []string) {
	for _, c := range []string{"memory", "cpu", "cpuacct", "pids"} {
		// Controllers may share a hierarchy.
		if d := v.dir(c, name); !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

func (v *v1) prepare() error {
	// Only kernels before 5.11 need to be told that limits hold for what is
	// below, and they refuse it when it is so already.
	_ = write(v.dir("memory", ""), "memory.use_hierarchy", "1")
	return nil
}

func (v *v1) limit(name string, l Limits) error {
	if l.MemoryBytes > 0 {
		n := strconv.FormatInt(l.MemoryBytes, 10)
		d := v.dir("memory", name)
		if err := write(d, "memory.limit_in_bytes", n); err != nil {
			return err
		}
		// Memory and swap together: no swap. Kernels without swap
		// accounting have no such file; the swappiness works on all.
		if err := write(d, "memory.memsw.limit_in_bytes", n); err != nil && !notThere(err) {
			return err
		}
		if err := write(d, "memory.swappiness", "0"); err != nil && !notThere(err) {
			return err
		}
	}
	if l.MilliCPUs > 0 {
		d := v.dir("cpu", name)
		if err := write(d, "cpu.cfs_period_us", strconv.Itoa(Period)); err != nil {
			return err
		}
		if err := write(d, "cpu.cfs_quota_us", strconv.FormatInt(l.MilliCPUs*Period/1000, 10)); err != nil {
			return err
		}
	}
	if l.Tasks > 0 {
		return write(v.dir("pids", name), "pids.max", strconv.FormatInt(l.Tasks, 10))
	}
	return nil
}

// notThere: opening with O_CREATE what does not exist is refused by the
// control group file system with EPERM or EACCES, not ENOENT.
func notThere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}

func (v *v1) usage(name string) (u Usage, err error) {
	ns, err := readInt(v.dir("cpuacct", name), "cpuacct.usage")
	if err != nil {
		return u, err
	}
	d := v.dir("memory", name)
	used, err := readInt(d, "memory.usage_in_bytes")
	if err != nil {
		return u, err
	}
	stat, err := readKeys(d, "memory.stat")
	if err != nil {
		return u, err
	}
	oom, err := readKeys(d, "memory.oom_control")
	if err != nil {
		return u, err
	}
	return Usage{CPU: time.Duration(ns), MemoryBytes: max(0, used-stat["total_inactive_file"]), OOMKills: oom["oom_kill"]}, nil
}

func (v *v1) kill(name string) {
	for _, d := range v.dirs(name) {
		killAll(d)
	}
}
