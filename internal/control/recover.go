package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Recover puts in order what a server left that died. Its sessions go on with
// their commands, where their machines run and can be taken over; else they
// end as aborted and their commands as killed. Machines of nothing are ended;
// sandboxes and sessions whose start nobody was told of are removed, and so
// are logs and layers that belong to nothing. Call it once, before any other
// call.
func (c *Control) Recover(ctx context.Context) error {
	sessions, err := c.store.UnfinishedSessions(ctx)
	if err != nil {
		return err
	}
	lost := c.takeOverAll(ctx, sessions)
	if err := c.node.Sweep(ctx); err != nil {
		return err
	}
	for _, l := range lost {
		if err := c.abort(ctx, l.session, l.why); err != nil {
			return fmt.Errorf("recover session %s: %w", l.session.ID, err)
		}
	}
	if len(sessions) > 0 {
		c.log.Warn("an earlier server died", "took over", len(sessions)-len(lost), "ended", len(lost))
	}
	if _, err := c.sweepLogs(ctx, false); err != nil {
		return err
	}
	if _, err := c.store.DeleteProvisional(ctx, c.now()); err != nil {
		return err
	}
	c.prune()
	c.expire()
	return nil
}

func (c *Control) abort(ctx context.Context, se store.Session, why string) error {
	if se.Status == api.StatusPending {
		ids, err := c.store.SessionIDs(ctx, se.SandboxID)
		if err != nil {
			return err
		}
		if len(ids) == 1 { // a create call that was never answered
			err := c.store.DeleteSandbox(ctx, se.SandboxID)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			_, err = c.store.DeleteOrphans(ctx, se.SandboxID, c.now())
			return err
		}
		// A resume that was never answered: the sandbox is as it was.
		return c.store.RemoveSession(ctx, se.ID)
	}
	commands, err := c.store.ListCommands(ctx, se.ID)
	if err != nil {
		return err
	}
	for _, cmd := range commands {
		if cmd.ExitCode == nil {
			if err := c.abortCommand(ctx, cmd); err != nil {
				return err
			}
		}
	}
	now := c.now()
	se.Status, se.AbortedAt, se.StoppedAt, se.UpdatedAt = api.StatusAborted, now, now, now
	se.Reason = why
	se.Machine, se.Layers, se.Drives = nil, nil, nil
	se.Usage = &store.Usage{}
	if se.StartedAt > 0 {
		se.Usage.DurationMs = max(0, now-se.StartedAt)
	}
	return c.store.UpdateSession(ctx, se)
}

// abortCommand ends a command whose last output may not have been stored.
func (c *Control) abortCommand(ctx context.Context, rec store.Command) error {
	code, now := killedCode, c.now()
	l, err := reopenLog(c.logPath(rec.SessionID, rec.ID), cmp.Or(rec.LogLimit, c.cfg.Limits.CommandLogSize))
	switch {
	case errors.Is(err, os.ErrNotExist): // it had not started
	case err != nil:
		return err
	default:
		if err := l.end(killedCode, now, "glovebox: the server died while this command ran\n"); err != nil {
			c.log.Error("close log of a command", "command", rec.ID, "err", err)
		}
		code, _ = l.result() // it may have ended just before the server did
		rec.LostBytes, rec.KeptBytes, rec.ExitOffset = l.lost()
		l.release()
	}
	rec.ExitCode, rec.DurationMs = &code, max(0, now-rec.StartedAt)
	return c.store.UpdateCommand(ctx, rec)
}
