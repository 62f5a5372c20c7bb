package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/guest/wire"
	"github.com/glovebox-dev/glovebox/internal/node"
)

// Terminal is a command on a terminal. It is not recorded: it ends with its
// user. Read, Write, Resize and Close may be called at the same time.
type Terminal struct {
	s    *session
	m    node.Machine
	id   string
	out  *io.PipeReader
	stop context.CancelFunc // ends the pump
	done chan struct{}      // closed when code is known
	code int
	hang sync.Once
}

const (
	sigHup  = 1
	sigCont = 18
	// hangupGrace is what a command gets to end after its terminal is gone.
	hangupGrace = 5 * time.Second
)

// OpenTerminal starts a command on a terminal. Close it.
func (p *Project) OpenTerminal(ctx context.Context, sessionID string, start api.TerminalStart) (*Terminal, error) {
	c, err := terminalCommand(start, p.c.cfg.Limits)
	if err != nil {
		return nil, err
	}
	s, err := p.running(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	c.Dir = s.rootDir()
	if start.Cwd != "" {
		c.Dir = resolvePath(c.Dir, "", start.Cwd)
	}
	own := map[string]string{"TERM": "xterm-256color"}
	for _, kv := range start.Env {
		k, v, _ := strings.Cut(kv, "=")
		own[k] = v
	}
	c.Env, c.User = environment(s.image.Config, s.liveMachine().Env(), s.env, own, start.Sudo), runAs(s.image.Config, start.Sudo)
	t, err := s.openTerminal(ctx, c)
	if errors.Is(err, guest.ErrNoDir) {
		return nil, api.BadRequest("field cwd: directory %.200q does not exist in the sandbox", c.Dir)
	}
	return t, err
}

// terminalCommand checks start and returns what it says of the command.
func terminalCommand(start api.TerminalStart, l api.Limits) (guest.Command, error) {
	if start.Command == "" {
		start.Command = "sh"
	}
	env := map[string]string{}
	for _, kv := range start.Env {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return guest.Command{}, api.BadRequest("field env: %.80q must be NAME=value", kv)
		}
		env[k] = v
	}
	req := api.RunCommandRequest{Command: start.Command, Args: start.Args, Cwd: start.Cwd, Env: env}
	if _, err := req.Validate(l); err != nil {
		return guest.Command{}, err
	}
	size, err := winsize(start.Cols.Or(api.DefaultTerminalCols), start.Rows.Or(api.DefaultTerminalRows))
	return guest.Command{
		ID: api.NewID(api.CommandPrefix), Argv: append([]string{start.Command}, start.Args...), TTY: &size,
	}, err
}

func winsize(cols, rows int64) (guest.Winsize, error) {
	for field, v := range map[string]int64{"cols": cols, "rows": rows} {
		if v < 1 || v > api.MaxTerminalSize {
			return guest.Winsize{}, api.BadRequest("field %s: %d is no size of a terminal; use 1 to %d", field, v, api.MaxTerminalSize)
		}
	}
	return guest.Winsize{Cols: uint16(cols), Rows: uint16(rows)}, nil
}

func (s *session) openTerminal(ctx context.Context, c guest.Command) (*Terminal, error) {
	m := s.liveMachine()
	start, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	if err := m.StartCommand(start, c); err != nil {
		if errors.Is(err, guest.ErrNoDir) {
			return nil, err
		}
		return nil, s.machineError(start, m, "open terminal", err)
	}
	out, w := io.Pipe()
	t := &Terminal{s: s, m: m, id: c.ID, out: out, done: make(chan struct{}), code: killedCode}
	ctx, t.stop = context.WithCancel(s.ctx)
	go t.pump(ctx, w)
	return t, nil
}

// pump copies what the terminal shows to w, at the reader's pace: a slow one
// makes the command wait, as a slow terminal does.
func (t *Terminal) pump(ctx context.Context, w *io.PipeWriter) {
	defer close(t.done)
	defer t.stop()
	// At the session's end nobody may be reading.
	defer context.AfterFunc(ctx, func() { w.Close() })()
	var dec wire.Decoder
	unread := false
	var next int64
	sink := func(off int64, b []byte) error {
		if off != next {
			return fmt.Errorf("%w: bytes at %d, expected %d", errLogBroken, off, next)
		}
		next += int64(len(b))
		return dec.Feed(b, func(r wire.Record) error {
			if r.Kind == wire.RecordExit {
				t.code = min(max(int(r.Code), 0), 255)
				return nil
			}
			// After Close nobody reads, and the command must still end.
			if !unread {
				_, err := w.Write(r.Data)
				unread = err != nil
			}
			return nil
		})
	}
	for wait := retryFirst; !dec.Done() && ctx.Err() == nil; wait = min(2*wait, retryMost) {
		err := t.m.Attach(ctx, t.id, next, sink)
		if dec.Done() || err == nil || isOver(err) || errors.Is(err, errLogBroken) || errors.Is(err, wire.ErrMalformed) {
			break
		}
		t.s.c.log.Warn("terminal interrupted", "session", t.s.id, "err", err, "again", wait)
		select {
		case <-ctx.Done():
		case <-t.m.Done():
			w.Close() //nolint:errcheck // never fails
			return
		case <-t.s.c.after(wait):
		}
	}
	w.Close() //nolint:errcheck // never fails
}

// Read returns what the terminal shows, and io.EOF after the command's end.
func (t *Terminal) Read(p []byte) (int, error) { return t.out.Read(p) }

// Write types.
func (t *Terminal) Write(p []byte) (int, error) {
	if err := t.m.WriteStdin(t.s.ctx, t.id, p); err != nil {
		if isOver(err) {
			return 0, io.ErrClosedPipe
		}
		return 0, t.s.machineError(t.s.ctx, t.m, "write to terminal", err)
	}
	return len(p), nil
}

// Resize tells the command the terminal's new size in characters.
func (t *Terminal) Resize(ctx context.Context, cols, rows int) error {
	size, err := winsize(int64(cols), int64(rows))
	if err != nil {
		return err
	}
	if err := t.m.Resize(ctx, t.id, size); err != nil && !isOver(err) {
		return t.s.machineError(ctx, t.m, "resize terminal", err)
	}
	return nil
}

// Wait returns the exit code, 137 where the session ended before the command.
func (t *Terminal) Wait(ctx context.Context) (int, error) {
	select {
	case <-t.done:
		return t.code, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Close hangs up: the command and what it started get SIGHUP, as if a
// terminal's line broke, and the command is killed where it does not end from
// that. It returns at once. Idempotent.
func (t *Terminal) Close() error {
	t.hang.Do(func() {
		t.out.Close() //nolint:errcheck // never fails
		go t.hangUp()
	})
	return nil
}

func (t *Terminal) hangUp() {
	defer t.stop()
	ctx, cancel := context.WithTimeout(t.s.ctx, 2*hangupGrace)
	defer cancel()
	select {
	case <-t.done:
		return
	default:
	}
	for _, sig := range []int{sigHup, sigCont} {
		if err := t.m.Signal(ctx, t.id, sig, true); err != nil && !isOver(err) {
			t.s.c.log.Warn("hang up terminal", "session", t.s.id, "err", err)
		}
	}
	select {
	case <-t.done:
		return
	case <-ctx.Done():
		return
	case <-t.s.c.after(hangupGrace):
	}
	if err := t.m.Signal(ctx, t.id, sigKill, false); err != nil && !isOver(err) {
		t.s.c.log.Warn("kill what a closed terminal left", "session", t.s.id, "err", err)
	}
	select {
	case <-t.done:
	case <-ctx.Done():
	}
}
