package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"

	"github.com/coder/websocket"

	"github.com/glovebox-dev/glovebox/api"
)

// maxMessage bounds one message of a terminal in bytes.
const maxMessage = 4 << 20

// ShellOptions say what runs in a terminal.
type ShellOptions struct {
	Command string // "" is "sh"
	Args    []string
	Dir     string
	Env     map[string]string
	Sudo    bool
	// Cols and Rows of the terminal; 0 is 80 and 24.
	Cols, Rows int
}

// Shell is a command on a terminal in a sandbox. Read, Write and Resize may
// be called at the same time; each of them from one goroutine at a time.
type Shell struct {
	conn   *websocket.Conn
	ctx    context.Context
	cancel context.CancelFunc

	rest []byte // of the message that is being read

	mu   sync.Mutex
	code int
}

// Shell opens a terminal. The command is hung up when the Shell is closed or
// ctx ends.
func (s *Sandbox) Shell(ctx context.Context, o ShellOptions) (*Shell, error) {
	var where api.InteractiveResponse
	err := s.withSession(ctx, func(session api.Session) error {
		return s.c.call(ctx, request{method: http.MethodPost, path: sessionPath(session.ID, "interactive"), json: api.Empty{}}, &where)
	})
	if err != nil {
		return nil, wrap(err, "open a terminal in sandbox %s", s.Name())
	}
	conn, resp, err := websocket.Dial(ctx, where.URL+"?token="+url.QueryEscape(where.Token), &websocket.DialOptions{HTTPClient: s.c.http}) //nolint:bodyclose // Dial does, or replaces it
	if err != nil {
		if resp != nil && resp.StatusCode >= 400 {
			err = answerError(resp)
		}
		return nil, wrap(err, "open a terminal in sandbox %s", s.Name())
	}
	conn.SetReadLimit(maxMessage)
	shell := &Shell{conn: conn, code: -1}
	shell.ctx, shell.cancel = context.WithCancel(ctx)
	if err := shell.send(o.start(s.Session().Cwd)); err != nil {
		shell.Close()
		return nil, wrap(err, "open a terminal in sandbox %s", s.Name())
	}
	return shell, nil
}

func (o ShellOptions) start(cwd string) api.TerminalStart {
	start := api.TerminalStart{
		Type: "start", Command: o.Command, Args: o.Args, Cwd: o.Dir, Sudo: o.Sudo,
		Cols: api.IntOf(80), Rows: api.IntOf(24),
	}
	if start.Command == "" {
		start.Command = "sh"
	}
	if start.Cwd == "" {
		start.Cwd = cwd
	}
	for k, v := range o.Env {
		start.Env = append(start.Env, k+"="+v)
	}
	if o.Cols > 0 && o.Rows > 0 {
		start.Cols, start.Rows = api.IntOf(int64(o.Cols)), api.IntOf(int64(o.Rows))
	}
	return start
}

func (s *Shell) send(message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return s.conn.Write(s.ctx, websocket.MessageText, text)
}

// Read returns what the terminal shows; io.EOF once the command has ended and
// all was read. ExitCode is known then.
func (s *Shell) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		kind, message, err := s.conn.Read(s.ctx)
		if err != nil {
			return 0, s.readError(err)
		}
		if kind == websocket.MessageBinary {
			s.rest = message
			continue
		}
		if err := s.control(message); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// control handles a text message; io.EOF for the exit.
func (s *Shell) control(message []byte) error {
	var exit struct {
		api.TerminalExit
		Error *api.Error `json:"error"`
	}
	if err := json.Unmarshal(message, &exit); err != nil {
		return fmt.Errorf("terminal: unreadable message: %w", err)
	}
	if exit.Type != "exit" {
		return nil
	}
	if exit.Error != nil {
		return wrap(exit.Error, "terminal")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code = exit.Code
	return io.EOF
}

func (s *Shell) readError(err error) error {
	if s.ExitCode() >= 0 {
		return io.EOF
	}
	if closed, ok := errors.AsType[websocket.CloseError](err); ok && closed.Reason != "" {
		return fmt.Errorf("terminal: the server closed it: %s", closed.Reason)
	}
	return wrap(err, "terminal: the connection was lost")
}

// Write types p on the terminal.
func (s *Shell) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := s.conn.Write(s.ctx, websocket.MessageBinary, p); err != nil {
		return 0, wrap(err, "terminal")
	}
	return len(p), nil
}

// Resize changes the terminal's size.
func (s *Shell) Resize(cols, rows int) error {
	return wrap(s.send(api.TerminalResize{Type: "resize", Cols: api.IntOf(int64(cols)), Rows: api.IntOf(int64(rows))}), "resize terminal")
}

// ExitCode is how the command ended, -1 before Read has returned io.EOF.
func (s *Shell) ExitCode() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.code
}

// Close hangs the command up where it still runs, and frees the connection.
func (s *Shell) Close() error {
	s.cancel()
	err := s.conn.CloseNow()
	if errors.Is(err, net.ErrClosed) {
		return nil // the server, or the end of ctx, had closed it
	}
	return wrap(err, "close terminal")
}
