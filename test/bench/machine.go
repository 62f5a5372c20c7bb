package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// machine is where and with what a run was made.
type machine struct {
	Date       string   `json:"date"`
	CPU        string   `json:"cpu"`
	CPUs       int      `json:"cpus"`
	Memory     string   `json:"memory"`
	Kernel     string   `json:"kernel"`
	Cgroup     string   `json:"cgroup"`
	KVM        string   `json:"kvm"`
	LoadBefore float64  `json:"loadAverageBefore"`
	LoadAfter  float64  `json:"loadAverageAfter"`
	Programs   []string `json:"programs"`
	LeftOut    []string `json:"leftOut"`
}

func describe(ctx context.Context, r *rig) machine {
	m := machine{
		Date: time.Now().UTC().Format(time.RFC3339), CPUs: runtime.NumCPU(),
		CPU:    told("/proc/cpuinfo", "model name"),
		Memory: told("/proc/meminfo", "MemTotal"),
		Cgroup: "v1", KVM: "no KVM", LoadBefore: r.loadBefore, LeftOut: r.leftOut,
		Programs: []string{firstLine(ctx, r.opts.bin, "version")},
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(release))
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		m.Cgroup = "v2"
	}
	if _, err := os.Stat("/dev/kvm"); err == nil {
		m.KVM = "KVM"
	}
	for _, p := range r.peers {
		m.Programs = append(m.Programs, p.name()+": "+version(ctx, p.program()))
	}
	return m
}

// field is the value of a line "KEY: VALUE".
func field(file, key string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v), nil
		}
	}
	return "", fmt.Errorf("%s: no line %s", file, key)
}

// told is a field for people.
func told(file, key string) string {
	value, err := field(file, key)
	if err != nil {
		return "unknown " + key
	}
	return value
}

// version is what a program says; one that was built from a module is told by
// the module's, since only releases know their own.
func version(ctx context.Context, program string) string {
	if path, err := exec.LookPath(program); err == nil {
		if info, err := buildinfo.ReadFile(path); err == nil && strings.HasPrefix(info.Main.Version, "v") {
			return info.Main.Path + " " + info.Main.Version
		}
	}
	return firstLine(ctx, program, "--version")
}

func firstLine(ctx context.Context, name string, args ...string) string {
	text, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return fmt.Sprintf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// loadAverage of the last minute; 0 where it cannot be read.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}
