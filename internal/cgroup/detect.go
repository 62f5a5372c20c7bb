package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// needed are the controllers without which a machine would not be limited.
var needed = []string{"memory", "cpu", "pids"}

type mount struct {
	dir     string
	kind    string // file system type
	options []string
}

// parseMounts picks the control group mounts from /proc/self/mountinfo, see
// proc_pid_mountinfo(5).
func parseMounts(mountinfo []byte) (mounts []mount) {
	for line := range strings.Lines(string(mountinfo)) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 || !strings.HasPrefix(r[0], "cgroup") {
			continue
		}
		mounts = append(mounts, mount{dir: unescape(l[4]), kind: r[0], options: strings.Split(r[2], ",")})
	}
	return mounts
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func detect(mounts []mount, path string) (layout, error) {
	var lacking []string
	for _, m := range mounts {
		if m.kind != "cgroup2" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(m.dir, "cgroup.controllers"))
		if err != nil {
			continue
		}
		lacking = missing(strings.Fields(string(b)))
		if len(lacking) == 0 {
			return &v2{mount: m.dir, path: path}, nil
		}
	}
	l := &v1{controllers: map[string]string{}, path: path}
	var have []string
	for _, m := range mounts {
		if m.kind != "cgroup" {
			continue
		}
		for _, c := range m.options {
			if _, known := l.controllers[c]; !known && slices.Contains([]string{"memory", "cpu", "cpuacct", "pids"}, c) {
				l.controllers[c] = m.dir
				have = append(have, c)
			}
		}
	}
	if len(have) > 0 {
		lacking = missing(have)
		if l.controllers["cpuacct"] == "" {
			lacking = append(lacking, "cpuacct")
		}
		if len(lacking) == 0 {
			return l, nil
		}
	}
	switch {
	case len(mounts) == 0:
		return nil, fmt.Errorf("%w: none are mounted: mount -t cgroup2 none /sys/fs/cgroup", ErrUnavailable)
	default:
		return nil, fmt.Errorf("%w: controllers lack: %s: enable them in the kernel's command line or, in a container, give it a writable /sys/fs/cgroup (docker run --privileged --cgroupns=private)",
			ErrUnavailable, strings.Join(lacking, ", "))
	}
}

func missing(have []string) (m []string) {
	for _, c := range needed {
		if !slices.Contains(have, c) {
			m = append(m, c)
		}
	}
	return m
}
