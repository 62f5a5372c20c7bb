package control

import (
	"context"
	"errors"
	"io"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/store"
)

func isStopped(err error) bool {
	return errors.Is(err, driver.ErrStopped) || errors.Is(err, guest.ErrClosed)
}

// command finds a command: one that runs, or the record of one that ended.
func (p *Project) command(ctx context.Context, sessionID, id string) (*command, store.Command, error) {
	s, _, err := p.find(ctx, sessionID)
	if err != nil {
		return nil, store.Command{}, err
	}
	if s != nil {
		s.mu.Lock()
		cmd := s.commands[id]
		s.mu.Unlock()
		if cmd != nil {
			return cmd, cmd.record(), nil
		}
	}
	rec, err := p.c.store.Command(ctx, sessionID, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, rec, api.NotFound("command", id)
	}
	return nil, rec, err
}

// GetCommand tells of a command as it is now.
func (p *Project) GetCommand(ctx context.Context, sessionID, id string) (*api.Command, error) {
	_, rec, err := p.command(ctx, sessionID, id)
	if err != nil {
		return nil, err
	}
	view := commandView(rec)
	return &view, nil
}

// WaitCommand answers when the command has ended.
func (p *Project) WaitCommand(ctx context.Context, sessionID, id string) (*api.Command, error) {
	cmd, rec, err := p.command(ctx, sessionID, id)
	if err != nil {
		return nil, err
	}
	if cmd != nil {
		select {
		case <-cmd.done:
			rec = cmd.record()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	view := commandView(rec)
	return &view, nil
}

// ListCommands of a session, oldest first.
func (p *Project) ListCommands(ctx context.Context, sessionID string) ([]api.Command, error) {
	if _, _, err := p.find(ctx, sessionID); err != nil {
		return nil, err
	}
	list, err := p.c.store.ListCommands(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	out := make([]api.Command, 0, len(list))
	for _, rec := range list {
		out = append(out, commandView(rec))
	}
	return out, nil
}

// KillCommand sends a signal, SIGTERM where none is named: SIGKILL to the
// process and all its descendants, another to its process group, 0 to none. A
// command that has ended is answered as it is.
func (p *Project) KillCommand(ctx context.Context, sessionID, id string, signal api.Int) (*api.Command, error) {
	cmd, rec, err := p.command(ctx, sessionID, id)
	if err != nil {
		return nil, err
	}
	sig, err := api.ValidateSignal(signal)
	if err != nil {
		return nil, err
	}
	if cmd != nil && sig != 0 {
		err := cmd.m.Signal(ctx, id, sig, sig == sigKill)
		if err != nil && !isOver(err) {
			return nil, cmd.s.machineError(ctx, cmd.m, "signal command "+id, err)
		}
		rec = cmd.record()
	}
	view := commandView(rec)
	return &view, nil
}

// CommandLogs follows a command's output from its first byte, also after its
// end and after the session's. Close the reader.
func (p *Project) CommandLogs(ctx context.Context, sessionID, id string) (*LogReader, error) {
	cmd, rec, err := p.command(ctx, sessionID, id)
	if err != nil {
		return nil, err
	}
	if cmd != nil {
		if r := cmd.log.reader(); r != nil {
			return r, nil
		}
		<-cmd.done // its file was let go, so the record is final
		rec = cmd.record()
	}
	return readFinished(p.c.logPath(sessionID, id), rec)
}

// stdinChunk is how much is sent to a command's stdin at a time.
const stdinChunk = 32 << 10

// WriteStdin copies r to the stdin of a command that was started with Stdin,
// and closes that at r's io.EOF. A command that ends before it has read all
// is no error.
func (p *Project) WriteStdin(ctx context.Context, sessionID, id string, r io.Reader) error {
	cmd, _, err := p.command(ctx, sessionID, id)
	if err != nil || cmd == nil {
		return err
	}
	if !cmd.stdin {
		return api.BadRequest("field stdin: command %s was started without it; set stdin when it is started", id)
	}
	buf := make([]byte, stdinChunk)
	for {
		n, readErr := r.Read(buf)
		if n > 0 {
			err = cmd.m.WriteStdin(ctx, id, buf[:n])
		}
		if readErr != nil && err == nil {
			if !errors.Is(readErr, io.EOF) {
				return api.BadRequest("body: the input broke off: %v", readErr)
			}
			err = cmd.m.CloseStdin(ctx, id)
		}
		switch {
		case err != nil && isOver(err):
			return nil
		case err != nil:
			return cmd.s.machineError(ctx, cmd.m, "write stdin of command "+id, err)
		case readErr != nil: // the end of the input, and it was passed on
			return nil //nolint:nilerr // see there
		}
	}
}
