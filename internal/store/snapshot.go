package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/glovebox-dev/glovebox/api"
)

const snapshotColumns = `n.id, n.project, n.sandbox, n.sandbox_name, n.session, n.parent, n.created_at, n.updated_at,
	n.last_used_at, n.expiration, n.expires_at, n.status, n.layers, n.data`

func scanSnapshot(r row) (Snapshot, error) {
	var sn Snapshot
	var layers, data []byte
	err := r.Scan(&sn.ID, &sn.Project, &sn.SandboxID, &sn.SandboxName, &sn.SessionID, &sn.ParentID, &sn.CreatedAt, &sn.UpdatedAt,
		&sn.LastUsedAt, &sn.Expiration, &sn.ExpiresAt, &sn.Status, &layers, &data)
	if err != nil {
		return Snapshot{}, missing(err)
	}
	if err := errors.Join(json.Unmarshal(layers, &sn.Layers), json.Unmarshal(data, &sn.SnapshotData)); err != nil {
		return Snapshot{}, fmt.Errorf("decode snapshot %s: %w", sn.ID, err)
	}
	return sn, nil
}

func insertSnapshot(ctx context.Context, tx *sql.Tx, sn Snapshot) error {
	layers, err := encode(sn.Layers)
	if err != nil {
		return err
	}
	data, err := encode(sn.SnapshotData)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO snapshots (id, project, sandbox, sandbox_name, session, parent, created_at, updated_at,
			last_used_at, expiration, expires_at, status, layers, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		sn.ID, sn.Project, sn.SandboxID, sn.SandboxName, sn.SessionID, sn.ParentID, sn.CreatedAt, sn.UpdatedAt,
		sn.LastUsedAt, sn.Expiration, sn.ExpiresAt, sn.Status, layers, data)
	return err
}

// useSnapshot counts the expiry of a snapshot anew, from now. "" is none.
func useSnapshot(ctx context.Context, tx *sql.Tx, id string, now int64) error {
	if id == "" {
		return nil
	}
	err := one(tx.ExecContext(ctx, `UPDATE snapshots SET last_used_at = max(last_used_at, ?1), data = json_remove(data, '$.provisional'),
			expires_at = CASE expiration WHEN 0 THEN 0 ELSE max(last_used_at, ?1) + expiration END
		WHERE id = ?2 AND status = 'created' AND (expires_at = 0 OR expires_at > ?1 OR `+running+`)`, now, id))
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%w: %s", ErrGone, id)
	}
	return err
}

// running is the condition that a session runs from a snapshot.
const running = `EXISTS (SELECT 1 FROM sessions e WHERE e.over = 0 AND e.data ->> '$.sourceSnapshotId' = snapshots.id)`

// keep stores the snapshot of a session's end.
func keep(ctx context.Context, tx *sql.Tx, se Session, kept *Kept) error {
	sn := kept.Snapshot
	if err := insertSnapshot(ctx, tx, sn); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE sandboxes SET current_snapshot = ? WHERE id = ? AND current_session = ? AND rolled_back = 0", sn.ID, se.SandboxID, se.ID)
	if err != nil {
		return err
	}
	if err := putKey(ctx, tx, kept.Key); err != nil || kept.Retention == nil {
		return err
	}
	return evict(ctx, tx, sn, *kept.Retention)
}

func evict(ctx context.Context, tx *sql.Tx, latest Snapshot, r Retention) error {
	const old = `sandbox = ?1 AND status = 'created' AND seq NOT IN (
		SELECT seq FROM snapshots WHERE sandbox = ?1 AND status = 'created' ORDER BY seq DESC LIMIT ?2)`
	if r.Delete {
		_, err := tx.ExecContext(ctx, "UPDATE snapshots SET status = 'deleted', updated_at = ?3 WHERE "+old+
			" AND NOT EXISTS (SELECT 1 FROM sandboxes s WHERE s.current_snapshot = snapshots.id) AND NOT "+running,
			latest.SandboxID, r.Count, latest.CreatedAt)
		return err
	}
	// Once: what was evicted before has its time already.
	_, err := tx.ExecContext(ctx, `UPDATE snapshots SET expiration = ?3, updated_at = ?4,
			expires_at = CASE ?3 WHEN 0 THEN 0 ELSE ?4 + ?3 END WHERE `+old+` AND expiration <> ?3`,
		latest.SandboxID, r.Count, r.Expiration, latest.CreatedAt)
	return err
}

func (s *sqliteStore) AddSnapshot(ctx context.Context, sn Snapshot) error {
	err := s.update(ctx, lasting, func(tx *sql.Tx) error { return insertSnapshot(ctx, tx, sn) })
	if err != nil {
		return fmt.Errorf("add snapshot %s: %w", sn.ID, err)
	}
	return nil
}

func (s *sqliteStore) Snapshot(ctx context.Context, project, id string) (Snapshot, error) {
	sn, err := scanSnapshot(s.read.QueryRowContext(ctx, "SELECT "+snapshotColumns+" FROM snapshots n WHERE n.id = ? AND n.project = ?", id, project))
	if err != nil {
		return Snapshot{}, fmt.Errorf("find snapshot %s: %w", id, err)
	}
	return sn, nil
}

func (s *sqliteStore) ProjectOfSnapshot(ctx context.Context, id string) (string, error) {
	var project string
	if err := s.read.QueryRowContext(ctx, "SELECT project FROM snapshots WHERE id = ?", id).Scan(&project); err != nil {
		return "", fmt.Errorf("find snapshot %s: %w", id, missing(err))
	}
	return project, nil
}

func (s *sqliteStore) ChildSnapshots(ctx context.Context, project, parent string) ([]Snapshot, error) {
	list, err := query(ctx, s.read, scanSnapshot, "SELECT "+snapshotColumns+" FROM snapshots n WHERE n.parent = ? AND n.parent <> '' AND n.project = ? ORDER BY n.seq", parent, project)
	if err != nil {
		return nil, fmt.Errorf("list children of snapshot %s: %w", parent, err)
	}
	return list, nil
}

func (s *sqliteStore) ListSnapshots(ctx context.Context, project string, q api.ListSnapshotsQuery) ([]Snapshot, string, error) {
	var lq listQuery
	lq.and("n.project = ?", project)
	if q.Name != "" {
		lq.and("n.sandbox_name = ?", q.Name)
	}
	text, args, err := lq.page("SELECT "+snapshotColumns+" FROM snapshots n", api.SortCreatedAt, "n.created_at", "n.id", q.Page)
	if err != nil {
		return nil, "", fmt.Errorf("list snapshots: %w", err)
	}
	list, err := query(ctx, s.read, scanSnapshot, text, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list snapshots of project %q: %w", project, err)
	}
	list, next := cut(list, api.SortCreatedAt, q.Page, func(sn Snapshot) (any, string) { return sn.CreatedAt, sn.ID })
	return list, next, nil
}
