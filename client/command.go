package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

// Cmd is a command to run. There is no shell between: Name is looked up in
// the sandbox's PATH and gets Args as they are.
type Cmd struct {
	Name string
	Args []string
	Dir  string            // "" is the sandbox's working directory
	Env  map[string]string // over the sandbox's own
	Sudo bool              // run as root
	// Timeout ends the command and all its descendants; 0 is none.
	Timeout time.Duration
	// Stdin is sent to the command until it ends; nil is /dev/null. A Read
	// that blocks beyond the command's end keeps a goroutine until it returns.
	Stdin io.Reader
	// Stdout and Stderr get the output as it comes; nil discards it. They
	// are written to from one goroutine, so they may be the same writer.
	Stdout, Stderr io.Writer
}

func (c Cmd) request(wait bool) api.RunCommandRequest {
	req := api.RunCommandRequest{
		Command: c.Name, Args: c.Args, Cwd: c.Dir, Env: c.Env, Sudo: c.Sudo,
		Wait: wait, Logs: wait, Stdin: c.Stdin != nil,
	}
	if wait {
		req.Encoding = api.EncodingBase64
	}
	if c.Timeout > 0 {
		req.Timeout = api.IntOf(c.Timeout.Milliseconds())
	}
	return req
}

// Command is a command that was started.
type Command struct {
	c *Client

	mu   sync.Mutex
	info api.Command
}

// RunCommand runs a command and waits for its end. A command that fails is no
// error: see ExitCode. When ctx ends, RunCommand returns and the command goes
// on; the Command, returned beside the error once it has started, can kill it.
func (s *Sandbox) RunCommand(ctx context.Context, cmd Cmd) (*Command, error) {
	var resp *http.Response
	err := s.withSession(ctx, func(session api.Session) (err error) {
		resp, err = s.c.do(ctx, request{method: http.MethodPost, path: sessionPath(session.ID, "cmd"), json: cmd.request(true), key: true}) //nolint:bodyclose // stream.close does
		return err
	})
	if err != nil {
		return nil, wrap(err, "run %s in sandbox %s", cmd.Name, s.Name())
	}
	stream, err := newLines(resp)
	if err != nil {
		return nil, wrap(err, "run %s in sandbox %s", cmd.Name, s.Name())
	}
	defer stream.close()
	first, err := stream.next()
	if err == nil && first.command == nil {
		err = errors.New("the stream does not begin with a command")
	}
	if err != nil {
		return nil, wrap(cutIfEOF(err), "run %s in sandbox %s", cmd.Name, s.Name())
	}
	command := &Command{c: s.c, info: *first.command}
	if cmd.Stdin != nil {
		_, stop := command.sendStdin(ctx, cmd.Stdin)
		defer stop()
	}
	return command, wrap(command.follow(ctx, stream, cmd), "run %s in sandbox %s", cmd.Name, s.Name())
}

// follow copies the stream's output and ends with the command's end. Where
// the stream was cut it goes on with the command's log at the same place.
func (c *Command) follow(ctx context.Context, stream *lines, cmd Cmd) error {
	out := &output{stdout: cmd.Stdout, stderr: cmd.Stderr}
	for {
		item, err := stream.next()
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, errCut):
			return c.followLog(ctx, out)
		case err != nil:
			return err
		case item.command != nil:
			c.set(*item.command)
			return nil
		}
		if err := out.write(item.log); err != nil {
			return err
		}
	}
}

func (c *Command) followLog(ctx context.Context, out *output) error {
	out.skipSeen()
	for log, err := range c.Logs(ctx) {
		if err != nil {
			return err
		}
		if err := out.write(log); err != nil {
			return err
		}
	}
	return c.Wait(ctx)
}

// output writes to the two writers and knows how far each has come.
type output struct {
	stdout, stderr io.Writer
	seen           [2]int // bytes written of stdout, stderr
	skip           [2]int // bytes that a repeated log brings once more
}

func (o *output) skipSeen() { o.skip = o.seen }

func (o *output) write(log api.LogLine) error {
	i, w := 0, o.stdout
	if log.Stream == api.Stderr {
		i, w = 1, o.stderr
	}
	n := min(o.skip[i], len(log.Data))
	o.skip[i] -= n
	data := log.Data[n:]
	o.seen[i] += len(data)
	if w == nil || data == "" {
		return nil
	}
	if _, err := io.WriteString(w, data); err != nil {
		return fmt.Errorf("write %s of the command: %w", log.Stream, err)
	}
	return nil
}

// StartCommand starts a command and returns at once. Its Stdout, Stderr and
// Stdin are ignored: see Logs, and WriteStdin for a Cmd with Stdin set.
func (s *Sandbox) StartCommand(ctx context.Context, cmd Cmd) (*Command, error) {
	var out api.CommandResponse
	err := s.withSession(ctx, func(session api.Session) error {
		return s.c.call(ctx, request{method: http.MethodPost, path: sessionPath(session.ID, "cmd"), json: cmd.request(false), key: true}, &out)
	})
	if err != nil {
		return nil, wrap(err, "start %s in sandbox %s", cmd.Name, s.Name())
	}
	return &Command{c: s.c, info: out.Command}, nil
}

// Command returns a command of the current session by its id.
func (s *Sandbox) Command(ctx context.Context, id string) (*Command, error) {
	return s.c.Command(ctx, s.Session().ID, id)
}

// Command returns a command by the ids of its session and its own.
func (c *Client) Command(ctx context.Context, sessionID, id string) (*Command, error) {
	command := &Command{c: c, info: api.Command{ID: id, SessionID: sessionID}}
	if err := command.Refresh(ctx); err != nil {
		return nil, err
	}
	return command, nil
}

// Commands lists the commands of the current session, oldest first.
func (s *Sandbox) Commands(ctx context.Context) ([]*Command, error) {
	var out api.CommandsResponse
	r := request{method: http.MethodGet, path: sessionPath(s.Session().ID, "cmd"), repeatable: true}
	if err := s.c.call(ctx, r, &out); err != nil {
		return nil, wrap(err, "list the commands of sandbox %s", s.Name())
	}
	commands := make([]*Command, len(out.Commands))
	for i, info := range out.Commands {
		commands[i] = &Command{c: s.c, info: info}
	}
	return commands, nil
}

// ID of the command.
func (c *Command) ID() string { return c.Info().ID }

// Info is the command as the last answer showed it.
func (c *Command) Info() api.Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info
}

// ExitCode is how the command ended: 128+N for signal N; -1 while it is not
// known to have ended.
func (c *Command) ExitCode() int {
	if code := c.Info().ExitCode; code != nil {
		return *code
	}
	return -1
}

// Duration from start to end; 0 while the command is not known to have ended.
func (c *Command) Duration() time.Duration {
	if ms := c.Info().DurationMs; ms != nil {
		return time.Duration(*ms) * time.Millisecond
	}
	return 0
}

func (c *Command) set(info api.Command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.info = info
}

func (c *Command) path(rest ...string) []string {
	info := c.Info()
	return sessionPath(info.SessionID, append([]string{"cmd", info.ID}, rest...)...)
}

// Refresh asks for the command's present state.
func (c *Command) Refresh(ctx context.Context) error {
	return c.get(ctx, nil)
}

// Wait returns when the command has ended; ExitCode tells how.
func (c *Command) Wait(ctx context.Context) error {
	return c.get(ctx, waitQuery)
}

func (c *Command) get(ctx context.Context, query url.Values) error {
	var out api.CommandResponse
	r := request{method: http.MethodGet, path: c.path(), query: query, repeatable: true}
	if err := c.c.call(ctx, r, &out); err != nil {
		return wrap(err, "command %s", c.ID())
	}
	c.set(out.Command)
	return nil
}

// Kill sends a signal: SIGKILL to the process and all its descendants, others
// to its process group. A command that has ended is left as it is.
func (c *Command) Kill(ctx context.Context, signal syscall.Signal) error {
	var out api.CommandResponse
	req := api.KillCommandRequest{Signal: api.IntOf(int64(signal))}
	if err := c.c.call(ctx, request{method: http.MethodPost, path: c.path("kill"), json: req}, &out); err != nil {
		return wrap(err, "kill command %s", c.ID())
	}
	c.set(out.Command)
	return nil
}

// Logs iterates over the command's output from its first byte on, as the bytes
// that the command wrote, and ends when the command has. An error ends the
// iteration.
func (c *Command) Logs(ctx context.Context) iter.Seq2[api.LogLine, error] {
	return func(yield func(api.LogLine, error) bool) {
		resp, err := c.c.do(ctx, request{method: http.MethodGet, path: c.path("logs"), query: url.Values{"encoding": {api.EncodingBase64}}, repeatable: true})
		if err != nil {
			yield(api.LogLine{}, wrap(err, "logs of command %s", c.ID()))
			return
		}
		stream, err := newLines(resp)
		if err != nil {
			yield(api.LogLine{}, wrap(err, "logs of command %s", c.ID()))
			return
		}
		defer stream.close()
		for {
			item, err := stream.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(api.LogLine{}, wrap(err, "logs of command %s", c.ID()))
				return
			}
			if item.command == nil && !yield(item.log, nil) {
				return
			}
		}
	}
}

func cutIfEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return errCut
	}
	return err
}
