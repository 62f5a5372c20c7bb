package store

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

// Snapshots is the part of a Store that keeps what is known of snapshots. One
// that was deleted stays known as such.
type Snapshots interface {
	// AddSnapshot stores one that no session's end made.
	AddSnapshot(ctx context.Context, sn Snapshot) error
	Snapshot(ctx context.Context, project, id string) (Snapshot, error)
	// ProjectOfSnapshot finds the project that a snapshot belongs to.
	ProjectOfSnapshot(ctx context.Context, id string) (string, error)
	ListSnapshots(ctx context.Context, project string, q api.ListSnapshotsQuery) (list []Snapshot, next string, err error)
	// ChildSnapshots of a snapshot, oldest first.
	ChildSnapshots(ctx context.Context, project, parent string) ([]Snapshot, error)
	// DeleteSnapshot marks a snapshot as deleted and returns it. One that was
	// deleted before stays as it is.
	DeleteSnapshot(ctx context.Context, project, id string, now int64) (Snapshot, error)
	// DeleteOrphans deletes the snapshots of a sandbox that no other sandbox
	// needs, and returns how many those were.
	DeleteOrphans(ctx context.Context, sandboxID string, now int64) (int, error)
	// DeleteProvisional deletes those whose sandbox did not come to be, and
	// returns how many those were. Call it before any sandbox is made.
	DeleteProvisional(ctx context.Context, now int64) (int, error)
	// ExpireSnapshots deletes those whose time has come, but for those that a
	// session runs from. It returns how many those were, and when the next
	// one's time comes (0: never). It also forgets those that were deleted
	// longer than KeepDeleted ago, but for those that a sandbox would start
	// from.
	ExpireSnapshots(ctx context.Context, now int64) (n int, next int64, err error)
	// ReplaceLayers sets the layers of a snapshot that is not deleted and
	// still has the layers old; ErrNotFound otherwise.
	ReplaceLayers(ctx context.Context, id string, old, layers []SnapshotLayer) error
	// LayersInUse are the digests of the layers of all snapshots that are not
	// deleted, and of all drives.
	LayersInUse(ctx context.Context) (map[string]bool, error)
	// ImageInUse tells whether a sandbox that can start again, a session that
	// is not over, or a snapshot that is not deleted was made from the image of
	// this digest.
	ImageInUse(ctx context.Context, digest string) (bool, error)
}

// KeepDeleted is how long a snapshot stays known after it was deleted.
const KeepDeleted = 30 * 24 * time.Hour

// Snapshot as stored. Times in milliseconds since 1970.
type Snapshot struct {
	ID, Project string
	// SandboxID and SandboxName are of the sandbox whose disk it was, which
	// may be gone.
	SandboxID, SandboxName string
	SessionID              string // that wrote the disk
	ParentID               string // that this session started from; "" for the image alone
	CreatedAt, UpdatedAt   int64
	LastUsedAt             int64
	Expiration             int64 // milliseconds after the last use; 0: never
	ExpiresAt              int64 // LastUsedAt + Expiration, or 0
	Status                 api.SnapshotStatus
	Layers                 []SnapshotLayer // on top of the image's, bottom first
	SnapshotData
}

// SnapshotLayer names a layer.
type SnapshotLayer struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"` // bytes on disk
}

// Ways in which a snapshot came to be.
const (
	MadeManually      = "manual"    // somebody asked for it
	MadeAutomatically = "automatic" // at the end of a persistent sandbox's session
	MadeByFork        = "fork"      // of a running sandbox
)

// SnapshotData is the part of a snapshot that no query looks into.
type SnapshotData struct {
	Method  string `json:"method"`
	Region  string `json:"region"`
	Image   string `json:"image"` // "reference@sha256:…"
	Runtime string `json:"runtime,omitempty"`
	// Provisional: made for a sandbox that is not there yet. It is not so any
	// more once a session starts from it.
	Provisional bool `json:"provisional,omitempty"`
}

// Kept is what a session's end leaves.
type Kept struct {
	Snapshot Snapshot
	// Retention, where not nil, is applied to all snapshots of the sandbox.
	Retention *Retention
	// Key, where not nil, is what a repeated request is recognised by.
	Key *Key
}

// Retention keeps the latest Count snapshots of a sandbox. Older ones are
// deleted or, without Delete, expire Expiration milliseconds (0: never) after
// their last use, which is counted anew from now. Those that a sandbox would
// start from, or a session runs from, stay.
type Retention struct {
	Count      int
	Delete     bool
	Expiration int64
}
