package api

// RunCommandRequest is the body of POST …/cmd.
type RunCommandRequest struct {
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Cwd     string            `json:"cwd,omitempty"` // relative to the session's cwd
	Env     map[string]string `json:"env,omitempty"`
	Sudo    bool              `json:"sudo,omitempty"`
	Wait    bool              `json:"wait,omitempty"`
	Logs    bool              `json:"logs,omitempty"`
	Timeout Int               `json:"timeout,omitzero"` // milliseconds
	// Stdin, an extension: the command reads what is sent to it until that
	// is closed, instead of /dev/null.
	Stdin bool `json:"stdin,omitempty"`
	// Encoding of the output that follows, an extension: EncodingBase64 for
	// its very bytes; empty for text, in which what is not UTF-8 is replaced.
	Encoding string `json:"encoding,omitempty"`
}

// EncodingBase64 is the one value of RunCommandRequest.Encoding, of the logs
// call's parameter of that name, and of LogLine.Encoding.
const EncodingBase64 = "base64"

// KillCommandRequest is the body of POST …/kill.
type KillCommandRequest struct {
	Signal Int `json:"signal,omitzero"`
}

// Command is a command of a session; ExitCode is nil while it runs.
type Command struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Args       []string `json:"args"`
	Cwd        string   `json:"cwd"`
	SessionID  string   `json:"sessionId"`
	ExitCode   *int     `json:"exitCode"`
	DurationMs *int64   `json:"durationMs,omitempty"`
	StartedAt  int64    `json:"startedAt"`
}

// CommandResponse is one command: an answer, or a line of a stream.
type CommandResponse struct {
	Command Command `json:"command"`
}

// CommandsResponse answers GET …/cmd, oldest first.
type CommandsResponse struct {
	Commands []Command `json:"commands"`
}

// Streams of a LogLine.
const (
	Stdout      = "stdout"
	Stderr      = "stderr"
	StreamError = "error"
)

// LogLine is a piece of output. Data need not be a line; it is valid UTF-8,
// or bytes in the encoding that was asked for.
type LogLine struct {
	Stream   string `json:"stream"`
	Data     string `json:"data"`
	Encoding string `json:"encoding,omitempty"`
}

// LogErrorLine ends a stream that broke.
type LogErrorLine struct {
	Stream string `json:"stream"` // StreamError
	Data   Error  `json:"data"`
}

// PathRequest is the body of fs/read and fs/mkdir.
type PathRequest struct {
	Path string `json:"path,omitempty"`
	Cwd  string `json:"cwd,omitempty"`
}

// TerminalStart is the first message on an interactive WebSocket.
type TerminalStart struct {
	Type    string   `json:"type"` // "start"
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"` // "K=V"
	Cwd     string   `json:"cwd,omitempty"`
	Sudo    bool     `json:"sudo,omitempty"`
	Cols    Int      `json:"cols,omitzero"`
	Rows    Int      `json:"rows,omitzero"`
}

// TerminalResize is a later text message of the client.
type TerminalResize struct {
	Type string `json:"type"` // "resize"
	Cols Int    `json:"cols,omitzero"`
	Rows Int    `json:"rows,omitzero"`
}

// TerminalExit is the server's last message.
type TerminalExit struct {
	Type string `json:"type"` // "exit"
	Code int    `json:"code"`
}
