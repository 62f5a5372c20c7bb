package guest

import (
	"context"
	"fmt"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// Ping asks for a sign of life.
func (c *Conn) Ping(ctx context.Context) error {
	_, err := c.call(ctx, wire.KindPing, nil)
	return err
}

// Takeover ends every other session and every connection that DialPort made
// over one: the host that had them is gone.
func (c *Conn) Takeover(ctx context.Context) error {
	_, err := c.call(ctx, wire.KindTakeover, nil)
	return err
}

// Warmup runs the agent's own binary once as a child, also before Assemble.
func (c *Conn) Warmup(ctx context.Context) error {
	if _, err := c.call(ctx, wire.KindWarmup, nil); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	return nil
}

// Assemble makes the machine's root, once in its life. Commands can be
// started after it.
func (c *Conn) Assemble(ctx context.Context, a Assembly) error {
	m := wire.Assembly{Layers: uint8(min(a.Layers, 255)), Resumed: a.Resumed, Hostname: a.Hostname, UID: a.Owner.UID, GID: a.Owner.GID, Dirs: a.Dirs}
	for p, data := range a.Files {
		m.Files = append(m.Files, wire.File{Path: p, Data: data})
	}
	m.Extras = a.Extras.wire()
	for _, d := range a.Drives {
		m.Drives = append(m.Drives, wire.Drive{Path: d.Path, Layers: uint8(min(d.Layers, 255)), ReadOnly: d.ReadOnly, Extras: d.Extras.wire()})
	}
	if _, err := c.call(ctx, wire.KindAssemble, m.Append(nil)); err != nil {
		return fmt.Errorf("assemble the root: %w", err)
	}
	return nil
}

func (x Extras) wire() (out wire.Extras) {
	for _, v := range x.Devices {
		out.Devices = append(out.Devices, wire.Device{Path: v.Path, Mode: v.Mode, UID: v.UID, GID: v.GID,
			Major: v.Major, Minor: v.Minor, MtimeNS: v.ModTime.UnixNano()})
	}
	for p, attrs := range x.Xattrs {
		for name, v := range attrs {
			out.Xattrs = append(out.Xattrs, wire.Xattr{Path: p, Name: name, Value: v})
		}
	}
	for name, target := range x.Links {
		out.Links = append(out.Links, wire.Link{Path: name, Target: target})
	}
	return out
}

// StartCommand starts cmd. Errors: ErrNoDir; for a program that cannot be
// executed none, its log says so. The same ID again does nothing.
func (c *Conn) StartCommand(ctx context.Context, cmd Command) error {
	m := wire.Start{ID: cmd.ID, Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir,
		UID: cmd.User.UID, GID: cmd.User.GID, Groups: cmd.User.Groups}
	if cmd.Stdin {
		m.Flags |= wire.FlagStdin
	}
	if cmd.TTY != nil {
		m.Flags |= wire.FlagTTY
		m.Rows, m.Cols = cmd.TTY.Rows, cmd.TTY.Cols
	}
	if cmd.ID == "" || len(cmd.ID) > wire.MaxID || len(cmd.Argv) == 0 {
		return fmt.Errorf("start command %q: needs an ID of 1 to %d bytes and an argument", cmd.ID, wire.MaxID)
	}
	if err := c.start(ctx, &m); err != nil {
		return fmt.Errorf("start command %s: %w", cmd.ID, err)
	}
	return nil
}

// maxEarly bounds the logs that are asked for before Attach is called.
const maxEarly = 64

// start asks for the new command's log in the same breath: a reader nearly
// always comes, and a message fewer is felt in a short command. What the log
// stream may bring until Attach takes it over is bounded by its window.
func (c *Conn) start(ctx context.Context, m *wire.Start) error {
	early, err := c.open()
	if err != nil {
		return err
	}
	m.Follow = early.id
	p, err := c.call(ctx, wire.KindStart, m.Append(nil))
	c.mu.Lock()
	keep := err == nil && len(p) == 1 && c.err == nil && len(c.early) < maxEarly
	if keep {
		c.early[m.ID] = early
	}
	c.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		early.close()
	case !keep:
		early.cancel()
	}
	return err
}

// takeEarly is the log stream that start has asked for, once.
func (c *Conn) takeEarly(id string) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.early[id]
	delete(c.early, id)
	return s
}

// ackEvery is how many bytes of a log are at most taken before that is said,
// while more are here already.
const ackEvery = 256 << 10

// Attach copies the log of a command from byte cursor on to sink, until the
// log's end (then nil), ctx's end or an error. sink gets consecutive pieces
// with their offset and may keep them; what it has taken is acknowledged, and
// the agent forgets it. Errors: sink's, ErrNoCommand, ErrCursor,
// ErrSuperseded by a newer Attach.
func (c *Conn) Attach(ctx context.Context, id string, cursor int64, sink func(off int64, b []byte) error) error {
	s := c.takeEarly(id)
	if s != nil && (cursor != 0 || s.failed()) {
		s.cancel()
		s = nil
	}
	if s == nil {
		var err error
		if s, err = c.attach(ctx, id, cursor); err != nil {
			return err
		}
	}
	if err := s.follow(ctx, cursor, sink); err != nil {
		s.cancel()
		return fmt.Errorf("attach to command %s: %w", id, err)
	}
	s.close()
	return nil
}

func (c *Conn) attach(ctx context.Context, id string, cursor int64) (*stream, error) {
	s, err := c.open()
	if err != nil {
		return nil, err
	}
	m := wire.Attach{ID: id, Cursor: cursor}
	if err := s.send(ctx, wire.KindAttach, m.Append(nil)); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stream) follow(ctx context.Context, pos int64, sink func(off int64, b []byte) error) error {
	acked := pos
	ack := func() error {
		acked = pos
		m := wire.Offset{N: pos}
		return s.send(ctx, wire.KindAck, m.Append(nil))
	}
	for {
		f, more, err := s.recv(ctx)
		if err != nil {
			return err
		}
		switch {
		case f.kind == wire.KindEnd:
			return ack()
		case f.kind != wire.KindData || len(f.data) <= 8:
			return s.protocol("frame of the wrong kind in a log")
		case int64(wire.U64(f.data)) != pos:
			return s.protocol("log with a gap")
		}
		if err := sink(pos, f.data[8:]); err != nil {
			return err
		}
		pos += int64(len(f.data) - 8)
		if !more || pos-acked >= ackEvery {
			if err := ack(); err != nil {
				return err
			}
		}
	}
}

// Signal sends sig to the command's process group, or with tree to all its
// processes, wherever they have gone; with SIGKILL it then waits until none
// is left. ErrFinished when the command has ended.
func (c *Conn) Signal(ctx context.Context, id string, sig int, tree bool) error {
	if sig < 0 || sig > 64 {
		return fmt.Errorf("signal %d: must be 0 to 64", sig)
	}
	m := wire.Signal{ID: id, Sig: uint8(sig), Tree: tree}
	return c.commandCall(ctx, "signal", id, wire.KindSignal, m.Append(nil))
}

func (c *Conn) commandCall(ctx context.Context, op, id string, k wire.Kind, p []byte) error {
	if _, err := c.call(ctx, k, p); err != nil {
		return fmt.Errorf("%s command %s: %w", op, id, err)
	}
	return nil
}

// WriteStdin writes all of p to a command with Stdin or TTY, and waits until
// its pipe has taken it. When ctx ends before, a part may be written.
func (c *Conn) WriteStdin(ctx context.Context, id string, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), wire.MaxStdin)
		m := wire.Stdin{ID: id, Data: p[:n]}
		// No time limit of ours: a command may read when it likes.
		if _, err := c.callFor(ctx, wire.KindStdin, m.Append(nil)); err != nil {
			return fmt.Errorf("write stdin of command %s: %w", id, err)
		}
		p = p[n:]
	}
	return nil
}

// CloseStdin ends the command's input; to a terminal it sends the character
// that means that.
func (c *Conn) CloseStdin(ctx context.Context, id string) error {
	m := wire.ID{ID: id}
	return c.commandCall(ctx, "close stdin of", id, wire.KindCloseStdin, m.Append(nil))
}

// Resize sets the size of a command's terminal.
func (c *Conn) Resize(ctx context.Context, id string, size Winsize) error {
	m := wire.Resize{ID: id, Rows: size.Rows, Cols: size.Cols}
	return c.commandCall(ctx, "resize terminal of", id, wire.KindResize, m.Append(nil))
}

// Forget has the agent forget a finished command and what is left of its log.
func (c *Conn) Forget(ctx context.Context, id string) error {
	if s := c.takeEarly(id); s != nil {
		s.close()
	}
	m := wire.ID{ID: id}
	return c.commandCall(ctx, "forget", id, wire.KindForget, m.Append(nil))
}
