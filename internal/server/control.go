package server

import (
	"context"
	"io"

	"github.com/glovebox-dev/glovebox/api"
)

// Control is what the server needs of the control plane. Every error that a
// client may see is an *api.Error. Safe for concurrent use.
type Control interface {
	// Authenticate tells who a token stands for.
	Authenticate(ctx context.Context, token string) (api.Identity, error)
	// Project returns the project of that name, made on first use.
	Project(ctx context.Context, name string) (Project, error)
	// ProjectOf returns the name of the project that a session or a snapshot
	// belongs to: the published client names no project in the calls on them.
	ProjectOf(ctx context.Context, id string) (string, error)
	// RedeemInteractive trades a token of Project.NewInteractive, once.
	RedeemInteractive(ctx context.Context, token string) (project, sessionID string, err error)
	Status(ctx context.Context) api.Status
	// DiskUse tells what takes up the server's disk, of all projects together.
	DiskUse(ctx context.Context) (api.DiskUse, error)
	// Prune removes what nothing needs, of all projects.
	Prune(ctx context.Context, req api.PruneRequest) (api.PruneResponse, error)
}

// Project is the world that a token sees. An error of a call that starts
// something means that nothing was started.
type Project interface {
	CreateSandbox(ctx context.Context, req api.CreateSandboxRequest, idempotencyKey string) (*api.SandboxAndSession, error)
	GetSandbox(ctx context.Context, name string, resume bool) (*api.SandboxAndSession, error)
	ListSandboxes(ctx context.Context, q api.ListSandboxesQuery) (*api.SandboxesPage, error)
	UpdateSandbox(ctx context.Context, name string, req api.UpdateSandboxRequest) (*api.SandboxAndRoutes, error)
	DeleteSandbox(ctx context.Context, name string, deleteOrphanSnapshots bool) (*api.SandboxAndRoutes, error)

	ForkSandbox(ctx context.Context, name string, req api.ForkSandboxRequest, idempotencyKey string) (*api.SandboxAndSession, error)

	GetSession(ctx context.Context, id string) (*api.SessionAndRoutes, error)
	ListSessions(ctx context.Context, q api.ListSessionsQuery) (*api.SessionsPage, error)
	StopSession(ctx context.Context, id string) (*api.StopSessionResponse, error)
	ExtendTimeout(ctx context.Context, id string, durationMs api.Int) (*api.Session, error)
	SetNetworkPolicy(ctx context.Context, id string, policy api.NetworkPolicy) (*api.Session, error)
	// NetworkLog returns what comes after record since; with wait it waits for
	// that, or for the session's end.
	NetworkLog(ctx context.Context, id string, since int64, wait bool) (*api.NetworkLog, error)
	NetworkSummary(ctx context.Context, id string) (*api.NetworkSummary, error)

	CreateSnapshot(ctx context.Context, sessionID string, req api.CreateSnapshotRequest, idempotencyKey string) (*api.CreateSnapshotResponse, error)
	GetSnapshot(ctx context.Context, id string) (*api.Snapshot, error)
	ListSnapshots(ctx context.Context, q api.ListSnapshotsQuery) (*api.SnapshotsPage, error)
	SnapshotTree(ctx context.Context, q api.SnapshotTreeQuery) (*api.SnapshotTree, error)
	DeleteSnapshot(ctx context.Context, id string) (*api.Snapshot, error)
	// DiffSnapshots tells what is different in the second from the first.
	DiffSnapshots(ctx context.Context, id, with string) (*api.SnapshotDiff, error)

	GetDrive(ctx context.Context, nameOrID string) (*api.Drive, error)
	CreateDrive(ctx context.Context, name string, req api.CreateDriveRequest) (drive *api.Drive, made bool, err error)
	ListDrives(ctx context.Context, q api.ListDrivesQuery) (*api.DrivesPage, error)
	DeleteDrive(ctx context.Context, nameOrID string) (*api.Drive, error)

	RunCommand(ctx context.Context, sessionID string, req api.RunCommandRequest, idempotencyKey string) (*api.Command, error)
	GetCommand(ctx context.Context, sessionID, id string) (*api.Command, error)
	WaitCommand(ctx context.Context, sessionID, id string) (*api.Command, error)
	ListCommands(ctx context.Context, sessionID string) ([]api.Command, error)
	KillCommand(ctx context.Context, sessionID, id string, signal api.Int) (*api.Command, error)
	CommandLogs(ctx context.Context, sessionID, id string) (LogReader, error)
	// WriteStdin copies r to the command and closes its stdin at r's io.EOF.
	WriteStdin(ctx context.Context, sessionID, id string, r io.Reader) error

	WriteFiles(ctx context.Context, sessionID, cwd string, gzipTar io.Reader) error
	// ReadFile's size is what the file's metadata says: 0 is also said of
	// files that are made while they are read.
	ReadFile(ctx context.Context, sessionID, path, cwd string) (content io.ReadCloser, size int64, err error)
	Mkdir(ctx context.Context, sessionID, path, cwd string) error

	NewInteractive(ctx context.Context, sessionID string) (token string, err error)
	OpenTerminal(ctx context.Context, sessionID string, start api.TerminalStart) (Terminal, error)
}

// LogReader reads a command's output from its first byte. Not safe for
// concurrent use, but for Close.
type LogReader interface {
	// Raw makes Next return output as it is, not as valid UTF-8. Call it
	// before Next.
	Raw()
	// Next returns the next piece of a stream (api.Stdout or api.Stderr),
	// valid UTF-8 unless Raw, and io.EOF after the command's end.
	Next(ctx context.Context) (stream, data string, err error)
	Close() error
}

// Terminal is a command on a terminal. Read, Write, Resize and Close may be
// called at the same time.
type Terminal interface {
	io.ReadWriter
	Resize(ctx context.Context, cols, rows int) error
	// Wait returns the exit code; call it after Read has returned io.EOF.
	Wait(ctx context.Context) (int, error)
	// Close hangs the command up where it still runs. Idempotent.
	Close() error
}
