// Package cgroup limits and measures groups of processes with the control
// groups of Linux, version 2 or 1, whichever has the controllers.
//
// A Parent holds one Group per machine. No process of the caller's is ever
// moved: a new process is born in its group (version 2, Group.Dir with
// CLONE_INTO_CGROUP) or joins it by itself before it does anything else
// (version 1, Group.Procs).
package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUnavailable is what Open returns (wrapped) where this host does not let
// us make groups; the text says why, and what to do.
var ErrUnavailable = errors.New("control groups are not available")

// Period is the period of CPU quotas in microseconds.
const Period = 100_000

// Limits of a group. Zero means no limit.
type Limits struct {
	MemoryBytes int64 // memory and page cache; swap is never allowed
	MilliCPUs   int64 // CPU time per time, in thousandths
	Tasks       int64 // processes and threads
}

// Usage of a group since it was made.
type Usage struct {
	CPU         time.Duration
	MemoryBytes int64 // without page cache that can be dropped at once
	OOMKills    int64 // processes that the kernel ended at the memory limit
}

// layout is what differs between the versions.
type layout interface {
	version() int
	// dirs are the directories that together are the group name ("" for
	// the parent itself).
	dirs(name string) []string
	// prepare makes the parent ready to hold groups with limits.
	prepare() error
	limit(name string, l Limits) error
	usage(name string) (Usage, error)
	kill(name string)
}

// Parent is a group that holds groups. Safe for concurrent use.
type Parent struct{ layout }

// Open makes the group path (slash-separated, relative to the root that this
// process sees), or takes the one that is there.
func Open(path string) (*Parent, error) { return open("/proc/self/mountinfo", path) }

func open(mountinfo, path string) (*Parent, error) {
	b, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	l, err := detect(parseMounts(b), path)
	if err != nil {
		return nil, err
	}
	for _, d := range l.dirs("") {
		if err := mkdirAll(d); err != nil {
			return nil, fmt.Errorf("%w: %w: run as root, with control groups mounted writable", ErrUnavailable, err)
		}
	}
	if err := l.prepare(); err != nil {
		return nil, err
	}
	return &Parent{l}, nil
}

// mkdirAll makes a directory below one that another server may be removing at
// this moment, since it is empty.
func mkdirAll(dir string) (err error) {
	for range 5 {
		if err = os.MkdirAll(dir, 0o755); !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return err
}

// Version is 1 or 2.
func (p *Parent) Version() int { return p.version() }

// Limit bounds all groups of the parent together; zero fields stay as they are.
func (p *Parent) Limit(l Limits) error {
	if err := p.limit("", l); err != nil {
		return fmt.Errorf("limit the parent control group: %w", err)
	}
	return nil
}

// Group is a group that may exist or not. Safe for concurrent use.
type Group struct {
	p    *Parent
	name string
}

// Group names a group, without making it.
func (p *Parent) Group(name string) *Group { return &Group{p, name} }

// List returns the names of all groups.
func (p *Parent) List() ([]string, error) {
	seen := map[string]bool{}
	var names []string
	for _, d := range p.dirs("") {
		entries, err := os.ReadDir(d)
		if err != nil {
			return nil, fmt.Errorf("list control groups: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() && !seen[e.Name()] {
				seen[e.Name()] = true
				names = append(names, e.Name())
			}
		}
	}
	return names, nil
}

// Remove removes the parent itself, which must hold no groups, and the group
// above it if that holds nothing else.
func (p *Parent) Remove(ctx context.Context) error {
	dirs := p.dirs("")
	if err := remove(ctx, dirs, func() {}); err != nil {
		return err
	}
	for _, d := range dirs {
		_ = unix.Rmdir(filepath.Dir(d)) // refused unless empty
	}
	return nil
}

// Create makes the group with its limits. On error nothing of it remains.
func (g *Group) Create(l Limits) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("make control group %s: %w", g.name, err)
		}
	}()
	made := make([]string, 0, 4)
	defer func() {
		if err != nil {
			for _, d := range made {
				_ = unix.Rmdir(d) // just made, and empty
			}
		}
	}()
	for _, d := range g.p.dirs(g.name) {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
		made = append(made, d)
	}
	return g.p.limit(g.name, l)
}

// Limit changes the limits of an existing group; zero fields stay as they are.
func (g *Group) Limit(l Limits) error {
	if err := g.p.limit(g.name, l); err != nil {
		return fmt.Errorf("limit control group %s: %w", g.name, err)
	}
	return nil
}

// Dir opens the group's directory, for CLONE_INTO_CGROUP; version 2 only.
func (g *Group) Dir() (*os.File, error) {
	return os.OpenFile(g.p.dirs(g.name)[0], unix.O_PATH|unix.O_DIRECTORY, 0)
}

// Procs opens the files to which a process writes "0" to join the group with
// all its threads; version 1 only, one per hierarchy.
func (g *Group) Procs() (files []*os.File, err error) {
	for _, d := range g.p.dirs(g.name) {
		f, err := os.OpenFile(filepath.Join(d, "cgroup.procs"), os.O_WRONLY, 0)
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// Exists tells whether any part of the group is there.
func (g *Group) Exists() bool {
	for _, d := range g.p.dirs(g.name) {
		if _, err := os.Stat(d); err == nil {
			return true
		}
	}
	return false
}

// Usage measures.
func (g *Group) Usage() (Usage, error) {
	u, err := g.p.usage(g.name)
	if err != nil {
		return u, fmt.Errorf("measure control group %s: %w", g.name, err)
	}
	return u, nil
}

// PIDs are the processes in the group, as this process numbers them.
func (g *Group) PIDs() []int {
	var pids []int
	seen := map[int]bool{}
	for _, d := range g.p.dirs(g.name) {
		for _, p := range readPIDs(d) {
			if !seen[p] {
				seen[p] = true
				pids = append(pids, p)
			}
		}
	}
	return pids
}

// Remove ends every process in the group and removes it; it waits, until ctx
// is done, for processes that are still ending. Removing a group that does not
// exist is no error.
func (g *Group) Remove(ctx context.Context) error {
	if err := remove(ctx, g.p.dirs(g.name), func() { g.p.kill(g.name) }); err != nil {
		return fmt.Errorf("remove control group %s: %w", g.name, err)
	}
	return nil
}

func remove(ctx context.Context, dirs []string, kill func()) error {
	wait := time.Millisecond
	for _, d := range dirs {
		for {
			err := unix.Rmdir(d)
			if err == nil || errors.Is(err, unix.ENOENT) {
				break
			}
			if !errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("%s: %w", d, err)
			}
			kill()
			// The kernel tells nobody (version 1) when a group has become
			// empty, so this asks again.
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s: %w, processes %v are still in it", d, ctx.Err(), readPIDs(d))
			case <-time.After(wait):
			}
			wait = min(2*wait, 50*time.Millisecond)
		}
	}
	return nil
}

func readPIDs(dir string) []int {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for f := range bytes.FieldsSeq(b) {
		if p, err := strconv.Atoi(string(f)); err == nil && p > 0 {
			pids = append(pids, p)
		}
	}
	return pids
}

func killAll(dir string) {
	for _, p := range readPIDs(dir) {
		_ = unix.Kill(p, unix.SIGKILL) // gone already, or ending
	}
}

// write sets a control file.
func write(dir, file, value string) error {
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s to %q: %w", file, value, err)
	}
	return nil
}

// readInt reads a control file that holds one number.
func readInt(dir, file string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}

// readKeys reads a control file of lines "key number".
func readKeys(dir, file string) (map[string]int64, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, err
	}
	m := map[string]int64{}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			m[k] = n
		}
	}
	return m, nil
}
