package node

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// hostMemory returns the host's total and available memory in bytes.
// Source: proc_meminfo(5), fields MemTotal and MemAvailable.
func hostMemory() (total, available int64, err error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, 0, fmt.Errorf("read the host's memory: %w", err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		name, rest, _ := strings.Cut(sc.Text(), ":")
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			continue // a line without a unit is none of ours
		}
		switch name {
		case "MemTotal":
			total = kb << 10
		case "MemAvailable":
			available = kb << 10
		}
	}
	if total == 0 {
		return 0, 0, fmt.Errorf("read the host's memory: no MemTotal in /proc/meminfo")
	}
	return total, available, nil
}
