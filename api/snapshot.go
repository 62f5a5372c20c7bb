package api

// SnapshotStatus is the state of a snapshot.
type SnapshotStatus string

// All states.
const (
	SnapshotCreated SnapshotStatus = "created"
	SnapshotDeleted SnapshotStatus = "deleted"
	SnapshotFailed  SnapshotStatus = "failed"
)

// Snapshot is a kept disk.
type Snapshot struct {
	ID              string         `json:"id"`
	SourceSessionID string         `json:"sourceSessionId"`
	Region          string         `json:"region"`
	Regions         []string       `json:"regions,omitempty"`
	Status          SnapshotStatus `json:"status"`
	SizeBytes       int64          `json:"sizeBytes"`
	ExpiresAt       int64          `json:"expiresAt,omitempty"`
	CreatedAt       int64          `json:"createdAt"`
	UpdatedAt       int64          `json:"updatedAt"`
	LastUsedAt      int64          `json:"lastUsedAt,omitempty"`
	CreationMethod  string         `json:"creationMethod,omitempty"`
	ParentID        string         `json:"parentId,omitempty"`
	// SandboxName, an extension, is whose disk it was; the sandbox may be gone.
	SandboxName string `json:"sandboxName,omitempty"`
	// Image, an extension, is what the disk stands on: "name@sha256:…".
	Image string `json:"image,omitempty"`
}

// CreateSnapshotRequest is the body of POST …/snapshot; 0 = never expires.
type CreateSnapshotRequest struct {
	Expiration Int `json:"expiration,omitzero"`
}

// CreateSnapshotResponse answers it.
type CreateSnapshotResponse struct {
	Snapshot Snapshot `json:"snapshot"`
	Session  Session  `json:"session"`
}

// MaxSnapshotChanges is how many changes one answer lists at most.
const MaxSnapshotChanges = 100_000

// SnapshotChange is a name that is not the same in two snapshots.
type SnapshotChange struct {
	Kind string `json:"kind"` // added, changed or deleted
	Path string `json:"path"` // invalid UTF-8 becomes U+FFFD
	Dir  bool   `json:"dir,omitempty"`
}

// SnapshotDiff answers GET …/snapshots/{id}/diff?with=ID, an extension.
type SnapshotDiff struct {
	Changes []SnapshotChange `json:"changes"`
	// Omitted changes follow these, but for the bound on one answer.
	Omitted int `json:"omitted,omitempty"`
}

// SnapshotResponse answers GET and DELETE of a snapshot.
type SnapshotResponse struct {
	Snapshot Snapshot `json:"snapshot"`
}

// SnapshotsPage is one page of GET /v2/sandboxes/snapshots.
type SnapshotsPage struct {
	Snapshots  []Snapshot `json:"snapshots"`
	Pagination Pagination `json:"pagination"`
}

// SnapshotNode is a place in the tree of snapshots.
type SnapshotNode struct {
	Snapshot Snapshot   `json:"snapshot"`
	Siblings []Snapshot `json:"siblings"`
	Count    string     `json:"count"`
}

// SnapshotTree answers GET …/snapshots/tree.
type SnapshotTree struct {
	Snapshots  []SnapshotNode `json:"snapshots"`
	Anchor     *SnapshotNode  `json:"anchor,omitempty"`
	Pagination Pagination     `json:"pagination"`
}

// Drive is a disk that outlives sandboxes.
type Drive struct {
	ID                 string `json:"id"`
	Name               string `json:"name"`
	ProjectID          string `json:"projectId"`
	Region             string `json:"region"`
	MaxSizeBytes       int64  `json:"maxSizeBytes"`
	CurrentSessionID   string `json:"currentSessionId,omitempty"`
	CurrentSandboxName string `json:"currentSandboxName,omitempty"`
	CreatedAt          int64  `json:"createdAt"`
	UpdatedAt          int64  `json:"updatedAt"`
}

// CreateDriveRequest is the body of POST …/drives/{name}.
type CreateDriveRequest struct {
	ProjectID    string `json:"projectId,omitempty"`
	Region       string `json:"region,omitempty"`
	MaxSizeBytes Int    `json:"maxSizeBytes,omitzero"`
}

// DriveResponse answers the calls on one drive.
type DriveResponse struct {
	Drive Drive `json:"drive"`
}

// DrivesPage is one page of GET /v2/sandboxes/drives.
type DrivesPage struct {
	Drives     []Drive    `json:"drives"`
	Pagination Pagination `json:"pagination"`
}
