package fakecontrol

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/server"
)

var errBroken = errors.New("secret detail of the inside")

// Program is what a command does. It returns its exit code, and should return
// when ctx ends.
type Program func(ctx context.Context, run *Run) int

// Run is a running program's surroundings.
type Run struct {
	Args  []string
	Stdin io.Reader
	cmd   *command
}

// Print writes a piece to api.Stdout or api.Stderr.
func (r *Run) Print(stream, data string) { r.cmd.append(stream, data) }

// Programs are known to every fake.
func Programs() map[string]Program {
	return map[string]Program{
		"true": func(context.Context, *Run) int { return 0 },
		"echo": func(_ context.Context, r *Run) int {
			r.Print(api.Stdout, strings.Join(r.Args, " ")+"\n")
			return 0
		},
		"both": func(_ context.Context, r *Run) int {
			r.Print(api.Stdout, "out ☕\n")
			r.Print(api.Stderr, "err\n")
			return 3
		},
		"sleep": func(ctx context.Context, r *Run) int { <-ctx.Done(); return 0 },
		"say-and-sleep": func(ctx context.Context, r *Run) int {
			r.Print(api.Stdout, "ready\n")
			<-ctx.Done()
			return 0
		},
		"flood": func(_ context.Context, r *Run) int {
			n, _ := strconv.Atoi(r.Args[0])
			for left := n; left > 0; {
				piece := min(left, 300_000)
				r.Print(api.Stdout, strings.Repeat("x", piece))
				left -= piece
			}
			return 0
		},
		"cat": func(ctx context.Context, r *Run) int {
			buf := make([]byte, 32<<10)
			for {
				n, err := r.Stdin.Read(buf)
				if n > 0 {
					r.Print(api.Stdout, string(buf[:n]))
				}
				if err != nil {
					return 0
				}
			}
		},
		"first-line": func(_ context.Context, r *Run) int {
			buf := make([]byte, 4096)
			n, _ := r.Stdin.Read(buf)
			r.Print(api.Stdout, string(buf[:n]))
			return 0
		},
	}
}

type command struct {
	cancel context.CancelFunc
	stdinR *io.PipeReader
	stdinW *io.PipeWriter

	mu      sync.Mutex
	info    api.Command
	signal  int
	logs    []api.LogLine
	changed chan struct{} // closed and replaced at each change
}

func (c *command) update(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *command) append(stream, data string) {
	c.update(func() { c.logs = append(c.logs, api.LogLine{Stream: stream, Data: data}) })
}

func (c *command) kill(signal int) {
	c.mu.Lock()
	if c.info.ExitCode == nil && c.signal == 0 {
		c.signal = signal
	}
	c.mu.Unlock()
	c.cancel()
	c.stdinR.CloseWithError(io.ErrClosedPipe)
}

func (c *command) snapshot() *api.Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	info := c.info
	return &info
}

// wait returns when the command has ended.
func (c *command) wait(ctx context.Context) (*api.Command, error) {
	for {
		c.mu.Lock()
		info, changed := c.info, c.changed
		c.mu.Unlock()
		if info.ExitCode != nil {
			return &info, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *command) run(ctx context.Context, program Program, args []string) {
	code := program(ctx, &Run{Args: args, Stdin: c.stdinR, cmd: c})
	c.stdinR.CloseWithError(io.ErrClosedPipe)
	c.update(func() {
		if c.signal != 0 {
			code = 128 + c.signal
		}
		ms := int64(5)
		c.info.ExitCode, c.info.DurationMs = &code, &ms
	})
	c.cancel()
}

// RunCommand starts a program of the fake; others exit 127.
func (p *Project) RunCommand(_ context.Context, sessionID string, req api.RunCommandRequest, key string) (*api.Command, error) {
	s, err := p.session(sessionID, true)
	if err != nil {
		return nil, err
	}
	if _, err := req.Validate(api.DefaultLimits()); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, ok := p.keys[key].(*command); ok && key != "" {
		return old.snapshot(), nil
	}
	p.c.count("RunCommand")
	ctx, cancel := context.WithCancel(context.Background())
	c := &command{cancel: cancel, changed: make(chan struct{}), info: api.Command{
		ID: p.c.id(api.CommandPrefix), Name: req.Command, Args: append([]string{}, req.Args...),
		Cwd: s.info.Cwd, SessionID: sessionID, StartedAt: Epoch,
	}}
	c.stdinR, c.stdinW = io.Pipe()
	if !req.Stdin {
		c.stdinW.Close()
	}
	program := p.c.commands[req.Command]
	if program == nil {
		program = func(_ context.Context, r *Run) int {
			r.Print(api.Stderr, fmt.Sprintf("glovebox: %s: not found\n", req.Command))
			return 127
		}
	}
	s.commands = append(s.commands, c)
	p.keys[key] = c
	first := c.snapshot()
	p.c.running.Go(func() { c.run(ctx, program, req.Args) })
	return first, nil
}

func (p *Project) command(sessionID, id string) (*command, error) {
	s, err := p.session(sessionID, false)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range s.commands {
		if c.info.ID == id {
			return c, nil
		}
	}
	return nil, api.NotFound("command", id)
}

// GetCommand returns its present state.
func (p *Project) GetCommand(_ context.Context, sessionID, id string) (*api.Command, error) {
	c, err := p.command(sessionID, id)
	if err != nil {
		return nil, err
	}
	return c.snapshot(), nil
}

// WaitCommand returns when it has ended.
func (p *Project) WaitCommand(ctx context.Context, sessionID, id string) (*api.Command, error) {
	c, err := p.command(sessionID, id)
	if err != nil {
		return nil, err
	}
	return c.wait(ctx)
}

// ListCommands is oldest first.
func (p *Project) ListCommands(_ context.Context, sessionID string) ([]api.Command, error) {
	s, err := p.session(sessionID, true)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []api.Command
	for _, c := range s.commands {
		out = append(out, *c.snapshot())
	}
	return out, nil
}

// KillCommand ends it with 128+signal.
func (p *Project) KillCommand(ctx context.Context, sessionID, id string, signal api.Int) (*api.Command, error) {
	n, err := api.ValidateSignal(signal)
	if err != nil {
		return nil, err
	}
	c, err := p.command(sessionID, id)
	if err != nil {
		return nil, err
	}
	c.kill(n)
	return c.wait(ctx)
}

// WriteStdin copies to the program's stdin.
func (p *Project) WriteStdin(_ context.Context, sessionID, id string, r io.Reader) error {
	c, err := p.command(sessionID, id)
	if err != nil {
		return err
	}
	if _, err := io.Copy(c.stdinW, r); err != nil {
		return err
	}
	return c.stdinW.Close()
}

type logReader struct {
	c    *command
	next int
}

// CommandLogs reads from the first piece on.
func (p *Project) CommandLogs(_ context.Context, sessionID, id string) (server.LogReader, error) {
	c, err := p.command(sessionID, id)
	if err != nil {
		return nil, err
	}
	return &logReader{c: c}, nil
}

// Raw changes nothing: what tests print is UTF-8.
func (r *logReader) Raw() {}

func (r *logReader) Next(ctx context.Context) (string, string, error) {
	for {
		r.c.mu.Lock()
		logs, ended, changed := r.c.logs, r.c.info.ExitCode != nil, r.c.changed
		r.c.mu.Unlock()
		if r.next < len(logs) {
			r.next++
			return logs[r.next-1].Stream, logs[r.next-1].Data, nil
		}
		if ended {
			return "", "", io.EOF
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", "", ctx.Err()
		}
	}
}

func (r *logReader) Close() error { return nil }
