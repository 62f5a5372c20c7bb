package api

// SessionStatus is the state of a session:
// pending → running → (snapshotting | stopping) → stopped, or failed (it
// could not start, or its machine ended by itself), or aborted (the server
// that ran it died).
type SessionStatus string

// All states.
const (
	StatusPending      SessionStatus = "pending"
	StatusRunning      SessionStatus = "running"
	StatusStopping     SessionStatus = "stopping"
	StatusStopped      SessionStatus = "stopped"
	StatusFailed       SessionStatus = "failed"
	StatusAborted      SessionStatus = "aborted"
	StatusSnapshotting SessionStatus = "snapshotting"
)

// Valid tells whether s is one of the states.
func (s SessionStatus) Valid() bool {
	switch s {
	case StatusPending, StatusRunning, StatusStopping, StatusStopped, StatusFailed, StatusAborted, StatusSnapshotting:
		return true
	}
	return false
}

// Over tells whether a session in this state will never run again.
func (s SessionStatus) Over() bool {
	return s == StatusStopped || s == StatusFailed || s == StatusAborted
}

// NetworkTransfer in bytes, as the sandbox sees it.
type NetworkTransfer struct {
	Ingress int64 `json:"ingress"`
	Egress  int64 `json:"egress"`
}

// Session is one life of a sandbox's machine.
type Session struct {
	ID               string             `json:"id"`
	SandboxName      string             `json:"sandboxName"`
	Memory           int                `json:"memory"` // MB
	VCPUs            int                `json:"vcpus"`
	Region           string             `json:"region"`
	Runtime          string             `json:"runtime,omitempty"`
	Timeout          int64              `json:"timeout"` // extensions included
	Status           SessionStatus      `json:"status"`
	RequestedAt      int64              `json:"requestedAt"`
	StartedAt        int64              `json:"startedAt,omitempty"`
	RequestedStopAt  int64              `json:"requestedStopAt,omitempty"`
	StoppedAt        int64              `json:"stoppedAt,omitempty"`
	AbortedAt        int64              `json:"abortedAt,omitempty"`
	Duration         *int64             `json:"duration,omitempty"`
	SourceSnapshotID string             `json:"sourceSnapshotId,omitempty"`
	SnapshottedAt    int64              `json:"snapshottedAt,omitempty"`
	CreatedAt        int64              `json:"createdAt"`
	UpdatedAt        int64              `json:"updatedAt"`
	Cwd              string             `json:"cwd"`
	InteractivePort  int                `json:"interactivePort,omitempty"`
	NetworkPolicy    *NetworkPolicyView `json:"networkPolicy,omitempty"`
	// After the stop.
	ActiveCPUDurationMs *int64           `json:"activeCpuDurationMs,omitempty"`
	NetworkTransfer     *NetworkTransfer `json:"networkTransfer,omitempty"`
	// Reason says in words why a session ended that nobody stopped.
	Reason string `json:"reason,omitempty"`
	// Notice says what a session that runs lacks of what one might expect.
	Notice string `json:"notice,omitempty"`
}

// SessionResponse answers extend-timeout and network-policy.
type SessionResponse struct {
	Session Session `json:"session"`
}

// SessionAndRoutes answers GET of a session.
type SessionAndRoutes struct {
	Session Session `json:"session"`
	Routes  []Route `json:"routes"`
}

// SessionsPage is one page of GET /v2/sandboxes/sessions.
type SessionsPage struct {
	Sessions   []Session  `json:"sessions"`
	Pagination Pagination `json:"pagination"`
}

// StopSessionResponse answers stop.
type StopSessionResponse struct {
	Session  Session   `json:"session"`
	Sandbox  *Sandbox  `json:"sandbox,omitempty"`
	Snapshot *Snapshot `json:"snapshot,omitempty"`
}

// ExtendTimeoutRequest is the body of extend-timeout, in milliseconds.
type ExtendTimeoutRequest struct {
	Duration Int `json:"duration,omitzero"`
}

// InteractiveResponse answers interactive: a WebSocket URL and a token that
// works once.
type InteractiveResponse struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}
