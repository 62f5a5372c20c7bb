package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

func (s *sqliteStore) DeleteSnapshot(ctx context.Context, project, id string, now int64) (Snapshot, error) {
	var sn Snapshot
	err := s.update(ctx, lasting, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE snapshots SET status = 'deleted', updated_at = ? WHERE id = ? AND project = ? AND status <> 'deleted'", now, id, project)
		if err != nil {
			return err
		}
		sn, err = scanSnapshot(tx.QueryRowContext(ctx, "SELECT "+snapshotColumns+" FROM snapshots n WHERE n.id = ? AND n.project = ?", id, project))
		return err
	})
	if err != nil {
		return Snapshot{}, fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	return sn, nil
}

// markDeleted marks the snapshots that a condition finds.
func (s *sqliteStore) markDeleted(ctx context.Context, now int64, where string, args ...any) (n int64, err error) {
	err = s.update(ctx, lasting, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE snapshots SET status = 'deleted', updated_at = ? WHERE status = 'created' AND "+where, append([]any{now}, args...)...)
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	return n, err
}

func (s *sqliteStore) DeleteOrphans(ctx context.Context, sandboxID string, now int64) (int, error) {
	n, err := s.markDeleted(ctx, now, `sandbox = ?
		AND NOT EXISTS (SELECT 1 FROM sandboxes s WHERE s.current_snapshot = snapshots.id AND s.id <> snapshots.sandbox) AND NOT `+running, sandboxID)
	if err != nil {
		return 0, fmt.Errorf("delete snapshots of sandbox %s: %w", sandboxID, err)
	}
	return int(n), nil
}

func (s *sqliteStore) DeleteProvisional(ctx context.Context, now int64) (int, error) {
	n, err := s.markDeleted(ctx, now, "data ->> '$.provisional'")
	if err != nil {
		return 0, fmt.Errorf("delete snapshots of sandboxes that were not made: %w", err)
	}
	return int(n), nil
}

// forget removes what is known of snapshots that were deleted long ago.
func (s *sqliteStore) forget(ctx context.Context, now int64) error {
	const old = `status = 'deleted' AND updated_at < ? AND NOT EXISTS (SELECT 1 FROM sandboxes s WHERE s.current_snapshot = snapshots.id)`
	before := now - KeepDeleted.Milliseconds()
	var some bool
	if err := s.read.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM snapshots WHERE "+old+")", before).Scan(&some); err != nil || !some {
		return err
	}
	return s.update(ctx, quick, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM snapshots WHERE "+old, before)
		return err
	})
}

func (s *sqliteStore) ExpireSnapshots(ctx context.Context, now int64) (int, int64, error) {
	if err := s.forget(ctx, now); err != nil {
		return 0, 0, fmt.Errorf("forget deleted snapshots: %w", err)
	}
	var next sql.NullInt64
	const soonest = "SELECT min(expires_at) FROM snapshots WHERE status = 'created' AND expires_at > 0"
	if err := s.read.QueryRowContext(ctx, soonest).Scan(&next); err != nil {
		return 0, 0, fmt.Errorf("find snapshots that expire: %w", err)
	}
	if !next.Valid || next.Int64 > now {
		return 0, next.Int64, nil
	}
	n, err := s.markDeleted(ctx, now, "expires_at > 0 AND expires_at <= ? AND NOT "+running, now)
	if err != nil {
		return 0, 0, fmt.Errorf("delete expired snapshots: %w", err)
	}
	// Those that a session runs from get more time when it ends.
	if err := s.read.QueryRowContext(ctx, soonest+" AND expires_at > ?", now).Scan(&next); err != nil {
		return 0, 0, fmt.Errorf("find snapshots that expire: %w", err)
	}
	return int(n), next.Int64, nil
}

func (s *sqliteStore) ReplaceLayers(ctx context.Context, id string, old, layers []SnapshotLayer) error {
	err := s.replaceLayers(ctx, "UPDATE snapshots SET layers = ? WHERE id = ? AND status = 'created' AND layers = ?", id, old, layers)
	if err != nil {
		return fmt.Errorf("replace layers of snapshot %s: %w", id, err)
	}
	return nil
}

// replaceLayers runs an update of new layers, id and old layers.
func (s *sqliteStore) replaceLayers(ctx context.Context, update, id string, old, layers []SnapshotLayer) error {
	was, err := encode(old)
	if err != nil {
		return err
	}
	now, err := encode(layers)
	if err != nil {
		return err
	}
	return s.update(ctx, lasting, func(tx *sql.Tx) error { return one(tx.ExecContext(ctx, update, now, id, was)) })
}

func (s *sqliteStore) LayersInUse(ctx context.Context) (map[string]bool, error) {
	return s.digests(ctx, `SELECT l.value ->> '$.digest' FROM snapshots n, json_each(n.layers) l WHERE n.status = 'created'
		UNION SELECT l.value ->> '$.digest' FROM drives d, json_each(d.layers) l`)
}

func (s *sqliteStore) DriveLayers(ctx context.Context) (map[string]bool, error) {
	return s.digests(ctx, "SELECT l.value ->> '$.digest' FROM drives d, json_each(d.layers) l")
}

func (s *sqliteStore) digests(ctx context.Context, text string) (map[string]bool, error) {
	scan := func(r row) (string, error) {
		var digest string
		err := r.Scan(&digest)
		return digest, err
	}
	list, err := query(ctx, s.read, scan, text)
	if err != nil {
		return nil, fmt.Errorf("list layers in use: %w", err)
	}
	out := make(map[string]bool, len(list))
	for _, d := range list {
		out[d] = true
	}
	return out, nil
}

func (s *sqliteStore) ImageInUse(ctx context.Context, digest string) (bool, error) {
	var used bool
	err := s.read.QueryRowContext(ctx, `SELECT
		EXISTS (SELECT 1 FROM sandboxes WHERE spec ->> '$.persistent' AND substr(spec ->> '$.image', -length(?1)) = ?1) OR
		EXISTS (SELECT 1 FROM snapshots WHERE status = 'created' AND substr(data ->> '$.image', -length(?1)) = ?1) OR
		EXISTS (SELECT 1 FROM sessions WHERE over = 0 AND substr(data ->> '$.image', -length(?1)) = ?1)`, "@"+strings.TrimPrefix(digest, "@")).Scan(&used)
	if err != nil {
		return false, fmt.Errorf("find users of image %s: %w", digest, err)
	}
	return used, nil
}
