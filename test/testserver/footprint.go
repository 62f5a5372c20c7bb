package testserver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// settle is how long the kernel may take to let go of what has ended.
const settle = 10 * time.Second

// Footprint is what the program occupies on this machine outside of its data
// directory.
type Footprint struct {
	Processes map[string]string // pid and start time: command line
	Mounts    []string
	Cgroups   []string
}

// Measure looks for processes of bin, for all mounts, and for the cgroups of
// machines of the data directory.
func Measure(t testing.TB, bin, dataDir string) Footprint {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return Footprint{
		Processes: processes(bin),
		Mounts:    strings.Split(strings.TrimSpace(string(mounts)), "\n"),
		Cgroups:   cgroups(dataDir),
	}
}

func processes(bin string) map[string]string {
	found := map[string]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		exe, err := os.Readlink(filepath.Join(dir, "exe"))
		if err != nil || strings.TrimSuffix(exe, " (deleted)") != bin {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if err != nil || len(fields) < 20 || fields[0] == "Z" {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		found[filepath.Base(dir)+"@"+fields[19]] = strings.ReplaceAll(string(line), "\x00", " ")
	}
	return found
}

// cgroups lists the groups of a data directory, which are named after it, so
// that several servers can share a machine.
func cgroups(dataDir string) []string {
	sum := sha256.Sum256([]byte(dataDir))
	name := "/glovebox/" + hex.EncodeToString(sum[:6])
	var found []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, name) {
			found = append(found, path)
		}
		return nil // a group that vanished meanwhile is none
	})
	return found
}

// AssertSame waits a little for the footprint to be what it was.
func (before Footprint) AssertSame(t testing.TB, bin, dataDir string) {
	t.Helper()
	var left []string
	for end := time.Now().Add(settle); ; time.Sleep(100 * time.Millisecond) {
		if left = before.more(Measure(t, bin, dataDir)); len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	t.Errorf("left on this machine:\n%s", strings.Join(left, "\n"))
}

// more lists what now has and before had not.
func (before Footprint) more(now Footprint) []string {
	var left []string
	for _, id := range slices.Sorted(maps.Keys(now.Processes)) {
		if _, ok := before.Processes[id]; !ok {
			left = append(left, fmt.Sprintf("process %s: %s", id, now.Processes[id]))
		}
	}
	for _, m := range now.Mounts {
		if !slices.Contains(before.Mounts, m) {
			left = append(left, "mount "+m)
		}
	}
	for _, c := range now.Cgroups {
		if !slices.Contains(before.Cgroups, c) {
			left = append(left, "cgroup "+c)
		}
	}
	return left
}

// OpenFiles counts the descriptors of the server's process.
func (s *Server) OpenFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
