package gvisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

const (
	stateFile    = "state.json"
	stateVersion = 1
)

// state is what a later server must know of a machine.
type state struct {
	Version int         `json:"version"`
	ID      string      `json:"id"`
	Spec    driver.Spec `json:"spec"`
	// PID (zero before the kernel is started) names the kernel's process
	// together with its start (clock ticks after the host's boot) and the
	// host's boot.
	PID      int      `json:"pid,omitempty"`
	PIDStart uint64   `json:"pidStart,omitempty"`
	BootID   string   `json:"bootID"`
	Layers   []string `json:"layers,omitempty"`
	// Disk is the writable layer's file, which has no name.
	Disk fileID `json:"disk"`
	// Drives are the writable layers of drives.
	Drives []driveState `json:"drives,omitempty"`
	// Cables counts those that were plugged in after the first one: a name
	// is used once.
	Cables int `json:"cables,omitempty"`
}

// save writes the state atomically. It need not survive a crash of the host,
// which no machine survives either.
func (s state) save(dir string) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("save the machine's state: %w", err)
	}
	tmp := filepath.Join(dir, stateFile+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("save the machine's state: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, stateFile)); err != nil {
		return fmt.Errorf("save the machine's state: %w", err)
	}
	return nil
}

func loadState(dir string) (s state, err error) {
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(b, &s)
}

// bootID differs between boots of the host.
var bootID = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
})

// clockTick is the unit of times in /proc/PID/stat, fixed for user space.
const clockTick = 10 * time.Millisecond
