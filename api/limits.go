package api

import "time"

// Limits that no setting changes, and defaults of requests.
const (
	MaxNameLength       = 128
	MaxPorts            = 15
	MaxTags             = 5
	MaxTagKeyLength     = 256
	MaxTagValueLength   = 256
	MaxImageLength      = 255
	MaxRegionLength     = 64
	MaxMounts           = 4
	MinDriveSize        = 1 << 20 // bytes
	MaxDriveSize        = 1 << 50 // bytes
	MaxKeepLast         = 10
	MinTimeout          = time.Second            // of a session
	MinCommandTimeout   = 100 * time.Millisecond // of a command
	DefaultTimeout      = 300 * time.Second
	DefaultRegion       = "iad1"
	DefaultVCPUs        = 2
	MemoryPerVCPU       = 2048 // MB
	DefaultSignal       = 15
	MaxSignal           = 64
	DefaultListLimit    = 20
	MaxListLimit        = 50
	MaxPathLength       = 4095
	MaxCommandArgs      = 16384
	MaxIdempotencyKey   = 255
	MaxTerminalSize     = 65535
	MinPreviewToken     = 16 // characters
	MaxPreviewToken     = 256
	DefaultTerminalCols = 80
	DefaultTerminalRows = 24
	// ReservedPort is where the agent listens in a sandbox; it is also the
	// interactivePort that answers name.
	ReservedPort = 61000
	// SnapshotExpiration by default; 0 in a request means never.
	DefaultSnapshotExpiration = 30 * 24 * time.Hour
)

// Limits are those that a server may set.
type Limits struct {
	MaxTimeout     time.Duration // of a session, extensions included
	EnvBytes       int           // names and values of one request together
	MaxVCPUs       int           // of one sandbox
	DiskBytes      int64         // of one sandbox
	CommandLogSize int64         // bytes of output kept for one command
}

// DefaultLimits are in force where a server sets none.
func DefaultLimits() Limits {
	return Limits{
		MaxTimeout:     24 * time.Hour,
		EnvBytes:       64 << 10,
		MaxVCPUs:       8,
		DiskBytes:      32 << 30,
		CommandLogSize: 256 << 20,
	}
}
