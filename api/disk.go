package api

// Kinds of what takes up the server's disk.
const (
	DiskImages    = "images"
	DiskSnapshots = "snapshots" // layers of snapshots, and of sessions that run
	DiskDrives    = "drives"    // layers of drives that no snapshot has
	DiskLayers    = "layers"    // that nothing needs any more
	DiskLogs      = "logs"      // output of commands
	DiskScratch   = "scratch"   // writable layers of running sandboxes
	DiskDatabase  = "database"
)

// DiskUse tells what takes up the server's disk.
type DiskUse struct {
	Kinds []DiskKind `json:"kinds"`
	// FreeBytes of the file system of the data directory.
	FreeBytes int64 `json:"freeBytes"`
}

// DiskKind is one kind of it.
type DiskKind struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"`
	Bytes int64  `json:"bytes"` // on disk, without holes
}

// PruneRequest is the body of POST /v1/prune.
type PruneRequest struct {
	// DryRun tells what would be removed and removes nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// Images removes images too that nothing was made from, but for the
	// default one.
	Images bool `json:"images,omitempty"`
}

// Pruned is one thing that was removed, or would be.
type Pruned struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// PruneResponse answers it.
type PruneResponse struct {
	Removed    []Pruned `json:"removed"`
	FreedBytes int64    `json:"freedBytes"`
}
