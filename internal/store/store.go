// Package store keeps what must outlive the server: projects, tokens,
// sandboxes, sessions, commands and idempotency keys. Store is the contract,
// SQLite the implementation, and package storetest the suite that every
// implementation passes.
package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"

	"github.com/glovebox-dev/glovebox/api"
)

// Errors of a Store, tested with errors.Is.
var (
	// ErrNotFound: no such object in this project.
	ErrNotFound = errors.New("not found")
	// ErrExists: the name is taken.
	ErrExists = errors.New("already exists")
	// ErrKeyUsed: the idempotency key is taken.
	ErrKeyUsed = errors.New("idempotency key is used")
	// ErrGone: the snapshot was deleted or has expired.
	ErrGone = errors.New("snapshot is deleted")
	// ErrCursor: the cursor was not made by a list with this sort order.
	ErrCursor = errors.New("unreadable cursor")
	// ErrNewer: the data was written by a later version of Glovebox.
	ErrNewer = errors.New("data of a newer version")
)

// Store is safe for concurrent use. What a call returns is the caller's own.
type Store interface {
	// EnsureProject makes a project, or does nothing where it exists.
	EnsureProject(ctx context.Context, name string, now int64) error

	// AddToken and FindToken work beside a running server, from another
	// process: what one added the other finds at once.
	AddToken(ctx context.Context, t Token) error
	FindToken(ctx context.Context, hash TokenHash) (Token, error)
	// Tokens of a project, or of all if it is empty, oldest first.
	Tokens(ctx context.Context, project string) ([]Token, error)
	// RemoveToken makes a token unknown, at once and everywhere.
	RemoveToken(ctx context.Context, hash TokenHash) error

	// CreateSandbox stores a new sandbox with its first session, and the key
	// (where not nil) that a repeated request is recognised by. The snapshot
	// that the session starts from, if any, counts as used. ErrExists where
	// the name is taken, ErrKeyUsed, ErrGone.
	CreateSandbox(ctx context.Context, sb Sandbox, se Session, key *Key) error
	Sandbox(ctx context.Context, project, name string) (Sandbox, error)
	SandboxByID(ctx context.Context, id string) (Sandbox, error)
	// SandboxOfSubdomain finds the sandbox that has a port at this subdomain.
	SandboxOfSubdomain(ctx context.Context, subdomain string) (Sandbox, error)
	// UpdateSandbox runs change on the stored sandbox, alone, and stores the
	// result; where change fails nothing is stored. Identity, status and
	// totals are not change's to touch. Where it sets CurrentSnapshotID, that
	// snapshot must be there: ErrNotFound, ErrGone.
	UpdateSandbox(ctx context.Context, id string, change func(*Sandbox) error) (Sandbox, error)
	// DeleteSandbox removes it with sessions, commands and keys; its
	// snapshots stay.
	DeleteSandbox(ctx context.Context, id string) error
	ListSandboxes(ctx context.Context, project string, q api.ListSandboxesQuery) (list []Sandbox, next string, err error)

	// AddSession stores a later session of a sandbox and makes it current. The
	// snapshot that it starts from counts as used: ErrGone.
	AddSession(ctx context.Context, se Session) error
	// RemoveSession takes back a later session, which did not start: the one
	// before it is the sandbox's current one again.
	RemoveSession(ctx context.Context, id string) error
	Session(ctx context.Context, project, id string) (Session, error)
	// UpdateSession stores se. The sandbox whose current session it is takes
	// its status over, and with the first status that is Over its usage is
	// added to the sandbox's totals.
	UpdateSession(ctx context.Context, se Session) error
	// EndSession is UpdateSession with what the session's end left: all of it
	// is stored or nothing. The snapshot becomes the sandbox's current one,
	// unless its owner chose another while the session ran. The states are of
	// the drives that it wrote.
	EndSession(ctx context.Context, se Session, kept *Kept, states ...DriveState) error
	ListSessions(ctx context.Context, project string, q api.ListSessionsQuery) (list []Session, next string, err error)
	// UnfinishedSessions are those whose status is not Over, of all projects.
	UnfinishedSessions(ctx context.Context) ([]Session, error)
	// SessionIDs of a sandbox, or of all with "".
	SessionIDs(ctx context.Context, sandboxID string) ([]string, error)
	// ProjectOfSession finds the project that a session belongs to.
	ProjectOfSession(ctx context.Context, id string) (string, error)

	// CreateCommand stores a command that is about to start. ErrKeyUsed.
	// Commands survive the death of the server, but a power cut may take
	// those of the last seconds.
	CreateCommand(ctx context.Context, c Command, key *Key) error
	UpdateCommand(ctx context.Context, c Command) error
	// DeleteCommand takes back one that could not be started, with its key.
	DeleteCommand(ctx context.Context, id string) error
	Command(ctx context.Context, sessionID, id string) (Command, error)
	// ListCommands of a session, oldest first.
	ListCommands(ctx context.Context, sessionID string) ([]Command, error)

	Snapshots
	Drives

	// FindKey returns what a key was used for, where that was after since.
	// Older keys are forgotten.
	FindKey(ctx context.Context, project, scope, key string, since int64) (Key, error)

	Close() error
}

// TokenHash is the SHA-256 of a token; the token itself is never stored.
type TokenHash [sha256.Size]byte

// HashToken returns what is stored of a token.
func HashToken(token string) TokenHash { return sha256.Sum256([]byte(token)) }

// Token stands for a project.
type Token struct {
	Hash      TokenHash
	Project   string
	CreatedAt int64
}

// Key is an idempotency key: the request (by its hash) that used it in
// Scope, and the id of what that made.
type Key struct {
	Project, Scope, Key string
	RequestHash         TokenHash
	ResultID            string
	CreatedAt           int64
}

// Port of a sandbox and where it is reached.
type Port struct {
	Port      int    `json:"port"`
	Subdomain string `json:"subdomain"`
}

// Usage that sessions add up to.
type Usage struct {
	EgressBytes  int64 `json:"egressBytes"`
	IngressBytes int64 `json:"ingressBytes"`
	CPUMs        int64 `json:"cpuMs"`
	DurationMs   int64 `json:"durationMs"`
}

// Sandbox as stored. Times in milliseconds since 1970, durations in
// milliseconds.
type Sandbox struct {
	ID, Project, Name    string
	CreatedAt, UpdatedAt int64
	Status               api.SessionStatus // of the current session
	StatusUpdatedAt      int64
	CurrentSessionID     string
	// CurrentSnapshotID is what the next session starts from; "" for the
	// image alone.
	CurrentSnapshotID string
	// RolledBack: the current snapshot was chosen while a session runs, whose
	// end must leave it as it is.
	RolledBack bool
	Tags       map[string]string
	Ports      []Port
	Totals     Usage
	SandboxSpec
}

// SandboxSpec is what a sandbox was asked to be.
type SandboxSpec struct {
	Persistent         bool                   `json:"persistent"`
	Region             string                 `json:"region"`
	FailoverRegions    []string               `json:"failoverRegions,omitempty"`
	NetworkID          string                 `json:"networkId,omitempty"`
	VCPUs              int                    `json:"vcpus"`
	Runtime            string                 `json:"runtime,omitempty"`
	Image              string                 `json:"image"` // "reference@sha256:…"
	Timeout            int64                  `json:"timeout"`
	NetworkPolicy      *api.NetworkPolicy     `json:"networkPolicy,omitempty"` // with its secrets
	Env                map[string]string      `json:"env,omitempty"`
	Mounts             map[string]api.Mount   `json:"mounts,omitempty"`
	SnapshotExpiration *int64                 `json:"snapshotExpiration,omitempty"`
	KeepLast           *api.SnapshotRetention `json:"keepLast,omitempty"`
	Cwd                string                 `json:"cwd"`
	Interactive        bool                   `json:"interactive,omitempty"`
	// PreviewToken is the hash of the token that previews ask for; nil: none.
	PreviewToken *TokenHash `json:"previewToken,omitempty"`
	// StartCommand runs in every session from its start on; nil: none.
	StartCommand *api.StartCommand `json:"startCommand,omitempty"`
	// WakeOnRequest: a request to a preview starts the sandbox.
	WakeOnRequest bool `json:"wakeOnRequest,omitempty"`
}

// Session as stored.
type Session struct {
	ID, Project, SandboxID, SandboxName string
	CreatedAt                           int64
	Status                              api.SessionStatus
	SessionData
}

// SessionData is the part of a session that no query looks into.
type SessionData struct {
	VCPUs            int                `json:"vcpus"`
	Region           string             `json:"region"`
	Runtime          string             `json:"runtime,omitempty"`
	Image            string             `json:"image"`
	Timeout          int64              `json:"timeout"`
	RequestedAt      int64              `json:"requestedAt"`
	StartedAt        int64              `json:"startedAt,omitempty"`
	RequestedStopAt  int64              `json:"requestedStopAt,omitempty"`
	StoppedAt        int64              `json:"stoppedAt,omitempty"`
	AbortedAt        int64              `json:"abortedAt,omitempty"`
	UpdatedAt        int64              `json:"updatedAt"`
	SourceSnapshotID string             `json:"sourceSnapshotId,omitempty"`
	SnapshottedAt    int64              `json:"snapshottedAt,omitempty"`
	KeptSnapshotID   string             `json:"keptSnapshotId,omitempty"` // of its disk, once over
	DiskLost         bool               `json:"diskLost,omitempty"`       // it could not be kept
	Notice           string             `json:"notice,omitempty"`
	Cwd              string             `json:"cwd"`
	Interactive      bool               `json:"interactive,omitempty"`
	NetworkPolicy    *api.NetworkPolicy `json:"networkPolicy,omitempty"` // with its secrets
	Usage            *Usage             `json:"usage,omitempty"`         // once over
	Reason           string             `json:"reason,omitempty"`
	// Machine is what a later server needs to take the session over, with
	// secrets, Layers what it started from on top of its image, and Drives what
	// it has besides. All only while it runs.
	Machine json.RawMessage `json:"machine,omitempty"`
	Layers  []SnapshotLayer `json:"layers,omitempty"`
	Drives  []SessionDrive  `json:"drives,omitempty"`
}

// SessionDrive is a drive in a session, with the layers that it started with.
type SessionDrive struct {
	ID       string          `json:"id"`
	Path     string          `json:"path"`
	ReadOnly bool            `json:"readOnly,omitempty"`
	Layers   []SnapshotLayer `json:"layers"`
}

// Command as stored; its environment, which may hold secrets, is not.
type Command struct {
	ID, SessionID string
	StartedAt     int64
	ExitCode      *int // nil while it runs
	CommandData
}

// CommandData is the part of a command that no query looks into.
type CommandData struct {
	Name       string   `json:"name"`
	Args       []string `json:"args"`
	Cwd        string   `json:"cwd"`
	DurationMs int64    `json:"durationMs,omitempty"`
	Timeout    int64    `json:"timeout,omitempty"` // milliseconds; 0: none
	Stdin      bool     `json:"stdin,omitempty"`
	LogLimit   int64    `json:"logLimit,omitempty"` // bytes of output that are kept
	// LostBytes of output were not kept: they followed the first KeptBytes
	// of the log, up to its record at ExitOffset.
	LostBytes  int64 `json:"lostBytes,omitempty"`
	KeptBytes  int64 `json:"keptBytes,omitempty"`
	ExitOffset int64 `json:"exitOffset,omitempty"`
}
