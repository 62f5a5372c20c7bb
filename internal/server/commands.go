package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

func (c *call) runCommand() error {
	var req api.RunCommandRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	p, id, err := c.session()
	if err != nil {
		return err
	}
	// Detached: a client that goes away at this moment must not leave a
	// command that runs and that nobody knows.
	cmd, err := p.RunCommand(c.detached(), id, req, c.idempotencyKey())
	if err != nil {
		return err
	}
	if !req.Wait {
		return c.ok(api.CommandResponse{Command: *cmd}, nil)
	}
	return c.streamCommand(p, *cmd, req)
}

// streamCommand sends the command, its output if req wants it, and the command again
// when it has ended. Nothing here is an error of the call: the command runs.
func (c *call) streamCommand(p Project, cmd api.Command, req api.RunCommandRequest) error {
	ctx, cancel := c.streamContext()
	defer cancel()
	s := c.newStream()
	s.raw = req.Encoding != ""
	first := cmd
	first.ExitCode, first.DurationMs = nil, nil
	if err := s.send(api.CommandResponse{Command: first}); err != nil {
		return nil // the client is gone; the command goes on
	}
	finished, err := c.followCommand(ctx, s, p, cmd, req.Logs)
	switch {
	case c.r.Context().Err() != nil:
		return nil
	case err != nil:
		_ = s.end(waitError(ctx, err))
		return nil
	}
	_ = s.send(api.CommandResponse{Command: *finished})
	return nil
}

func (c *call) followCommand(ctx context.Context, s *stream, p Project, cmd api.Command, logs bool) (*api.Command, error) {
	if !logs {
		return c.waitQuietly(ctx, s, p, cmd)
	}
	r, err := p.CommandLogs(ctx, cmd.SessionID, cmd.ID)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if err := s.follow(ctx, r); !errors.Is(err, io.EOF) {
		return nil, err
	}
	return p.WaitCommand(ctx, cmd.SessionID, cmd.ID)
}

// waitQuietly waits for the end of a command whose output nobody asked for.
func (c *call) waitQuietly(ctx context.Context, s *stream, p Project, cmd api.Command) (*api.Command, error) {
	ctx, cancel := context.WithCancel(ctx)
	var finished *api.Command
	var err error
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	go func() {
		defer close(done)
		finished, err = p.WaitCommand(ctx, cmd.SessionID, cmd.ID)
	}()
	idle := time.NewTicker(keepAlive)
	defer idle.Stop()
	for {
		select {
		case <-done:
			return finished, err
		case <-idle.C:
			if err := s.flush([]byte("\n")); err != nil {
				return nil, err
			}
		}
	}
}

func (c *call) listCommands() error {
	p, id, err := c.session()
	if err != nil {
		return err
	}
	commands, err := p.ListCommands(c.r.Context(), id)
	if commands == nil {
		commands = []api.Command{}
	}
	return c.ok(api.CommandsResponse{Commands: commands}, err)
}

func (c *call) getCommand() error {
	wait, err := c.boolQuery("wait")
	if err != nil {
		return err
	}
	p, id, err := c.session()
	if err != nil {
		return err
	}
	if !wait || c.r.Method != http.MethodGet {
		return c.okCommand(p.GetCommand(c.r.Context(), id, c.param("cmd")))
	}
	return c.waitJSON(func(ctx context.Context) (any, error) {
		cmd, err := p.WaitCommand(ctx, id, c.param("cmd"))
		if err != nil {
			return nil, err
		}
		return api.CommandResponse{Command: *cmd}, nil
	})
}

func (c *call) okCommand(cmd *api.Command, err error) error {
	if err != nil {
		return err
	}
	return c.ok(api.CommandResponse{Command: *cmd}, nil)
}

func (c *call) commandLogs() error {
	p, id, err := c.session()
	if err != nil {
		return err
	}
	encoding := c.r.URL.Query().Get("encoding")
	if err := api.ValidateEncoding(encoding); err != nil {
		return err
	}
	ctx, cancel := c.streamContext()
	defer cancel()
	r, err := p.CommandLogs(ctx, id, c.param("cmd"))
	if err != nil {
		return err
	}
	defer r.Close()
	s := c.newStream()
	s.raw = encoding != ""
	if err := s.begin(); err != nil || c.r.Method != http.MethodGet {
		return nil
	}
	err = s.follow(ctx, r)
	if errors.Is(err, io.EOF) || c.r.Context().Err() != nil {
		return nil
	}
	_ = s.end(waitError(ctx, err))
	return nil
}

func (c *call) killCommand() error {
	var req api.KillCommandRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	p, id, err := c.session()
	if err != nil {
		return err
	}
	return c.okCommand(p.KillCommand(c.detached(), id, c.param("cmd"), req.Signal))
}
