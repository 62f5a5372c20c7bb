package store

import (
	"context"

	"github.com/glovebox-dev/glovebox/api"
)

// Drives is the part of a Store that keeps what is known of drives. Their
// layers change with the end of the session that wrote them: see EndSession.
type Drives interface {
	// AddDrive stores a new one: ErrExists where the name is taken.
	AddDrive(ctx context.Context, d Drive) error
	// Drive finds one by name or id.
	Drive(ctx context.Context, project, nameOrID string) (Drive, error)
	ListDrives(ctx context.Context, project string, q api.ListDrivesQuery) (list []Drive, next string, err error)
	// DriveLayers are the digests of the layers of all drives.
	DriveLayers(ctx context.Context) (map[string]bool, error)
	// DeleteDrive removes it with all that it holds: ErrNotFound.
	DeleteDrive(ctx context.Context, id string) error
	// SaveDrives stores new states of drives: all of them or none. A drive
	// that is gone is none of them.
	SaveDrives(ctx context.Context, states []DriveState) error
	// ReplaceDriveLayers sets the layers of a drive that still has the layers
	// old, which hold the same; ErrNotFound otherwise.
	ReplaceDriveLayers(ctx context.Context, id string, old, layers []SnapshotLayer) error
}

// Drive as stored. Times in milliseconds since 1970.
type Drive struct {
	ID, Project, Name    string
	Region               string
	MaxBytes             int64
	CreatedAt, UpdatedAt int64
	Layers               []SnapshotLayer // of its last state, bottom first; none: nothing was kept yet
}

// DriveState is what a drive holds from some time on.
type DriveState struct {
	ID     string
	At     int64
	Layers []SnapshotLayer
}
