package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// process of the host.
type process struct {
	pid, parent int
	line        string // arguments, with spaces between
}

// allProcesses lists the host's; those that end meanwhile are left out.
func allProcesses() []process {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	var all []process
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // state, parent, …
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		all = append(all, process{pid, parent, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))})
	}
	return all
}

// children lists the processes whose parent is pid.
func children(pid int) []int {
	var out []int
	for _, p := range allProcesses() {
		if p.parent == pid {
			out = append(out, p.pid)
		}
	}
	return out
}

// processesOf finds those whose command line holds text, and all below them.
func processesOf(text string) []int {
	var found []int
	for _, p := range allProcesses() {
		if strings.Contains(p.line, text) {
			found = append(found, p.pid)
		}
	}
	return descendants(found)
}

// descendants adds to pids all that descends from them.
func descendants(pids []int) []int {
	all := allProcesses()
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if slices.Contains(pids, p.parent) && !slices.Contains(pids, p.pid) {
				pids, grown = append(pids, p.pid), true
			}
		}
	}
	return pids
}

// pss is the memory of processes, in MB: what several share is split between
// them.
func pss(pids []int) (float64, error) {
	total := 0.0
	for _, pid := range pids {
		kb, err := kilobytes(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss")
		if err != nil {
			return 0, err
		}
		total += kb
	}
	return total * 1024 / 1e6, nil
}

// available is the memory that the host has left, in MB.
func available() (float64, error) {
	kb, err := kilobytes("/proc/meminfo", "MemAvailable")
	return kb * 1024 / 1e6, err
}

func kilobytes(file, key string) (float64, error) {
	value, err := field(file, key)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSuffix(value, " kB"), 64)
}
