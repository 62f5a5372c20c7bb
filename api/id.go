package api

import (
	"crypto/rand"
	"strings"
)

// Prefixes of ids.
const (
	SandboxPrefix  = "sbx_"
	SessionPrefix  = "se_"
	CommandPrefix  = "cmd_"
	SnapshotPrefix = "snap_"
	DrivePrefix    = "drv_"
)

// NewID returns prefix and 26 random characters of [a-z2-7]: 130 bits that
// cannot be guessed.
func NewID(prefix string) string { return prefix + randomText() }

// NewName returns a name for a sandbox that was created without one.
func NewName() string { return "sandbox-" + randomText()[:16] }

// NewSubdomain returns a DNS label that cannot be guessed.
func NewSubdomain() string { return "sb-" + randomText() }

func randomText() string { return strings.ToLower(rand.Text()) }
