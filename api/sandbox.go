package api

// Resources of a sandbox. Memory, in MB, follows from VCPUs and must agree
// with it where it is given.
type Resources struct {
	VCPUs  Int `json:"vcpus,omitzero"`
	Memory Int `json:"memory,omitzero"`
}

// Kinds of Source.
const (
	SourceGit      = "git"
	SourceTarball  = "tarball"
	SourceSnapshot = "snapshot"
)

// Source is what a new sandbox starts with beside its image.
type Source struct {
	Type       string `json:"type"`
	URL        string `json:"url,omitempty"`        // git, tarball
	Depth      Int    `json:"depth,omitzero"`       // git
	Revision   string `json:"revision,omitempty"`   // git
	Username   string `json:"username,omitempty"`   // git
	Password   string `json:"password,omitempty"`   // git
	SnapshotID string `json:"snapshotId,omitempty"` // snapshot
}

// Modes of a Mount. "read-only" is another name of snapshot.
const (
	MountReadWrite = "read-write"
	MountSnapshot  = "snapshot"
	MountReadOnly  = "read-only"
)

// Mount puts a drive at a path.
type Mount struct {
	Drive string `json:"drive"`
	Mode  string `json:"mode,omitempty"`
}

// KeepLastSnapshots is how many automatic snapshots are kept.
type KeepLastSnapshots struct {
	Count         Int   `json:"count,omitzero"`
	Expiration    Int   `json:"expiration,omitzero"`
	DeleteEvicted *bool `json:"deleteEvicted,omitempty"`
}

// CreateSandboxRequest is the body of POST /v2|v3/sandboxes.
type CreateSandboxRequest struct {
	ProjectID          string             `json:"projectId,omitempty"`
	Name               string             `json:"name,omitempty"`
	Runtime            string             `json:"runtime,omitempty"`
	Image              string             `json:"image,omitempty"`
	Source             *Source            `json:"source,omitempty"`
	Ports              []Int              `json:"ports,omitempty"`
	Timeout            Int                `json:"timeout,omitzero"`
	Resources          *Resources         `json:"resources,omitempty"`
	Persistent         *bool              `json:"persistent,omitempty"`
	NetworkPolicy      *NetworkPolicy     `json:"networkPolicy,omitempty"`
	NetworkID          string             `json:"networkId,omitempty"`
	Env                map[string]string  `json:"env,omitempty"`
	Tags               map[string]string  `json:"tags,omitempty"`
	SnapshotExpiration Int                `json:"snapshotExpiration,omitzero"`
	KeepLastSnapshots  *KeepLastSnapshots `json:"keepLastSnapshots,omitempty"`
	Mounts             map[string]Mount   `json:"mounts,omitempty"`
	Region             string             `json:"region,omitempty"`
	FailoverRegions    []string           `json:"failoverRegions,omitempty"`
	// Interactive asks for Session.InteractivePort.
	Interactive bool `json:"__interactive,omitempty"`
	// PreviewToken, if not empty, is asked of everybody who opens a preview.
	// An addition of Glovebox's; the published client passes fields on that
	// begin so.
	PreviewToken string `json:"__previewToken,omitempty"`
	// StartCommand runs in every session from its start on: the server behind
	// a preview, say. Another addition.
	StartCommand *StartCommand `json:"__startCommand,omitempty"`
	// WakeOnRequest has a request to a preview of the stopped sandbox start
	// it; it must be persistent. Another addition.
	WakeOnRequest bool `json:"__wakeOnRequest,omitempty"`
}

// StartCommand is a command that every session of a sandbox begins with.
type StartCommand struct {
	Command string            `json:"command"`
	Args    []string          `json:"args,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Sudo    bool              `json:"sudo,omitempty"`
}

// Request is the call that runs it.
func (s StartCommand) Request() RunCommandRequest {
	return RunCommandRequest{Command: s.Command, Args: s.Args, Cwd: s.Cwd, Env: s.Env, Sudo: s.Sudo}
}

// Validate checks the field __startCommand; nil is none.
func (s *StartCommand) Validate(l Limits) error {
	if s == nil {
		return nil
	}
	req := s.Request()
	if _, err := req.Validate(l); err != nil {
		return BadRequest("field __startCommand: %v", err)
	}
	return nil
}

// View is s without what may be secret.
func (s *StartCommand) View() *StartCommand {
	if s == nil {
		return nil
	}
	return &StartCommand{Command: s.Command, Args: s.Args, Cwd: s.Cwd, Sudo: s.Sudo}
}

// UpdateSandboxRequest is the body of PATCH /v2/sandboxes/{name}: only the
// fields that are present change something.
type UpdateSandboxRequest struct {
	Persistent         *bool                       `json:"persistent,omitempty"`
	Resources          *Resources                  `json:"resources,omitempty"`
	Timeout            Int                         `json:"timeout,omitzero"`
	NetworkPolicy      *NetworkPolicy              `json:"networkPolicy,omitempty"`
	NetworkID          Nullable[string]            `json:"networkId,omitzero"`
	Tags               *map[string]string          `json:"tags,omitempty"`
	Ports              *[]Int                      `json:"ports,omitempty"`
	SnapshotExpiration Int                         `json:"snapshotExpiration,omitzero"`
	KeepLastSnapshots  Nullable[KeepLastSnapshots] `json:"keepLastSnapshots,omitzero"`
	CurrentSnapshotID  string                      `json:"currentSnapshotId,omitempty"`
	Region             string                      `json:"region,omitempty"`
	FailoverRegions    *[]string                   `json:"failoverRegions,omitempty"`
	Mounts             *map[string]Mount           `json:"mounts,omitempty"`
	// PreviewToken replaces the one of the create call; "" makes the previews
	// public.
	PreviewToken *string `json:"__previewToken,omitempty"`
	// StartCommand and WakeOnRequest replace those of the create call; null
	// is no start command.
	StartCommand  Nullable[StartCommand] `json:"__startCommand,omitzero"`
	WakeOnRequest *bool                  `json:"__wakeOnRequest,omitempty"`
}

// ForkSandboxRequest is the body of POST /v2/sandboxes/{name}/fork: each
// field that is present replaces what is copied.
type ForkSandboxRequest struct {
	Name               string             `json:"name,omitempty"`
	Image              string             `json:"image,omitempty"`
	Ports              *[]Int             `json:"ports,omitempty"`
	Timeout            Int                `json:"timeout,omitzero"`
	Resources          *Resources         `json:"resources,omitempty"`
	Persistent         *bool              `json:"persistent,omitempty"`
	NetworkPolicy      *NetworkPolicy     `json:"networkPolicy,omitempty"`
	NetworkID          string             `json:"networkId,omitempty"`
	Env                *map[string]string `json:"env,omitempty"`
	Tags               *map[string]string `json:"tags,omitempty"`
	SnapshotExpiration Int                `json:"snapshotExpiration,omitzero"`
	KeepLastSnapshots  *KeepLastSnapshots `json:"keepLastSnapshots,omitempty"`
	Region             string             `json:"region,omitempty"`
	FailoverRegions    *[]string          `json:"failoverRegions,omitempty"`
	Interactive        bool               `json:"__interactive,omitempty"`
}

// SnapshotRetention is KeepLastSnapshots in an answer.
type SnapshotRetention struct {
	Count         int64  `json:"count"`
	Expiration    *int64 `json:"expiration,omitempty"`
	DeleteEvicted bool   `json:"deleteEvicted"`
}

// Sandbox is the lasting object of a name; its sessions come and go.
type Sandbox struct {
	Name                     string             `json:"name"`
	Persistent               bool               `json:"persistent"`
	Region                   string             `json:"region"`
	FailoverRegions          []string           `json:"failoverRegions,omitempty"`
	NetworkID                string             `json:"networkId,omitempty"`
	VCPUs                    int                `json:"vcpus"`
	Memory                   int                `json:"memory"` // MB
	Runtime                  string             `json:"runtime,omitempty"`
	Image                    string             `json:"image,omitempty"` // "name@sha256:…"
	Timeout                  int64              `json:"timeout"`
	NetworkPolicy            *NetworkPolicyView `json:"networkPolicy,omitempty"`
	TotalEgressBytes         int64              `json:"totalEgressBytes"`
	TotalIngressBytes        int64              `json:"totalIngressBytes"`
	TotalActiveCPUDurationMs int64              `json:"totalActiveCpuDurationMs"`
	TotalDurationMs          int64              `json:"totalDurationMs"`
	CreatedAt                int64              `json:"createdAt"`
	UpdatedAt                int64              `json:"updatedAt"`
	ExpiresAt                int64              `json:"expiresAt,omitempty"` // while running
	CurrentSessionID         string             `json:"currentSessionId"`
	CurrentSnapshotID        string             `json:"currentSnapshotId,omitempty"`
	Status                   SessionStatus      `json:"status"`
	StatusUpdatedAt          int64              `json:"statusUpdatedAt"`
	Cwd                      string             `json:"cwd"`
	Tags                     map[string]string  `json:"tags,omitempty"`
	Mounts                   map[string]Mount   `json:"mounts,omitempty"`
	SnapshotExpiration       *int64             `json:"snapshotExpiration,omitempty"`
	KeepLastSnapshots        *SnapshotRetention `json:"keepLastSnapshots,omitempty"`
	// PreviewProtected: previews ask for a token.
	PreviewProtected bool `json:"previewProtected,omitempty"`
	// StartCommand without the values of its environment.
	StartCommand  *StartCommand `json:"startCommand,omitempty"`
	WakeOnRequest bool          `json:"wakeOnRequest,omitempty"`
}

// Route tells where a port of a sandbox is reached.
type Route struct {
	URL       string `json:"url"`
	Subdomain string `json:"subdomain"`
	Port      int    `json:"port"`
}

// SandboxAndSession answers create, get and fork.
type SandboxAndSession struct {
	Sandbox Sandbox `json:"sandbox"`
	Session Session `json:"session"`
	Routes  []Route `json:"routes"`
	Resumed bool    `json:"resumed"`
}

// SandboxAndRoutes answers update and delete.
type SandboxAndRoutes struct {
	Sandbox Sandbox `json:"sandbox"`
	Routes  []Route `json:"routes"`
}

// SandboxesPage is one page of GET /v2/sandboxes.
type SandboxesPage struct {
	Sandboxes  []Sandbox  `json:"sandboxes"`
	Pagination Pagination `json:"pagination"`
}
