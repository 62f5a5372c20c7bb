package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
)

func insertSession(ctx context.Context, tx *sql.Tx, se Session) error {
	data, err := encode(se.SessionData)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO sessions (id, project, sandbox, sandbox_name, created_at, status, over, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		se.ID, se.Project, se.SandboxID, se.SandboxName, se.CreatedAt, se.Status, se.Status.Over(), data)
	return err
}

func (s *sqliteStore) AddSession(ctx context.Context, se Session) error {
	err := s.update(ctx, quick, func(tx *sql.Tx) error {
		err := one(tx.ExecContext(ctx, "UPDATE sandboxes SET current_session = ?, rolled_back = 0, status = ?, status_updated_at = ? WHERE id = ?",
			se.ID, se.Status, se.UpdatedAt, se.SandboxID))
		if err != nil {
			return err
		}
		if err := useSnapshot(ctx, tx, se.SourceSnapshotID, se.CreatedAt); err != nil {
			return err
		}
		return insertSession(ctx, tx, se)
	})
	if err != nil {
		return fmt.Errorf("add session %s: %w", se.ID, err)
	}
	return nil
}

func (s *sqliteStore) RemoveSession(ctx context.Context, id string) error {
	err := s.update(ctx, quick, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE sandboxes SET (current_session, status, status_updated_at) = (
				SELECT e.id, e.status, coalesce(e.data ->> '$.stoppedAt', sandboxes.status_updated_at) FROM sessions e
				WHERE e.sandbox = sandboxes.id AND e.id <> ?1 ORDER BY e.rowid DESC LIMIT 1)
			WHERE current_session = ?1 AND EXISTS (SELECT 1 FROM sessions e WHERE e.sandbox = sandboxes.id AND e.id <> ?1)`, id)
		if err != nil {
			return err
		}
		return one(tx.ExecContext(ctx, "DELETE FROM sessions WHERE id = ?", id))
	})
	if err != nil {
		return fmt.Errorf("remove session %s: %w", id, err)
	}
	return nil
}

const sessionColumns = "e.id, e.project, e.sandbox, e.sandbox_name, e.created_at, e.status, e.data"

func scanSession(r row) (Session, error) {
	var se Session
	var data []byte
	if err := r.Scan(&se.ID, &se.Project, &se.SandboxID, &se.SandboxName, &se.CreatedAt, &se.Status, &data); err != nil {
		return Session{}, missing(err)
	}
	if err := json.Unmarshal(data, &se.SessionData); err != nil {
		return Session{}, fmt.Errorf("decode session %s: %w", se.ID, err)
	}
	return se, nil
}

func (s *sqliteStore) Session(ctx context.Context, project, id string) (Session, error) {
	se, err := scanSession(s.read.QueryRowContext(ctx, "SELECT "+sessionColumns+" FROM sessions e WHERE e.id = ? AND e.project = ?", id, project))
	if err != nil {
		return Session{}, fmt.Errorf("find session %s: %w", id, err)
	}
	return se, nil
}

func (s *sqliteStore) UpdateSession(ctx context.Context, se Session) error {
	return s.EndSession(ctx, se, nil)
}

func (s *sqliteStore) EndSession(ctx context.Context, se Session, kept *Kept, states ...DriveState) error {
	err := s.update(ctx, lasting, func(tx *sql.Tx) error {
		if kept != nil {
			if err := keep(ctx, tx, se, kept); err != nil {
				return err
			}
		}
		if err := saveDrives(ctx, tx, states); err != nil {
			return err
		}
		return updateSession(ctx, tx, se)
	})
	if err != nil {
		return fmt.Errorf("update session %s: %w", se.ID, err)
	}
	return nil
}

func updateSession(ctx context.Context, tx *sql.Tx, se Session) error {
	data, err := encode(se.SessionData)
	if err != nil {
		return err
	}
	var over bool
	var oldStatus string
	if err := tx.QueryRowContext(ctx, "SELECT over, status FROM sessions WHERE id = ?", se.ID).Scan(&over, &oldStatus); err != nil {
		return missing(err)
	}
	first := !over && se.Status.Over()
	if first { // while it still counts as one that runs from its snapshot
		if err := useSnapshot(ctx, tx, se.SourceSnapshotID, se.UpdatedAt); err != nil && !errors.Is(err, ErrGone) {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, "UPDATE sessions SET status = ?, over = ?, data = ? WHERE id = ?", se.Status, se.Status.Over(), data, se.ID); err != nil {
		return err
	}
	if oldStatus != string(se.Status) {
		_, err := tx.ExecContext(ctx, "UPDATE sandboxes SET status = ?, status_updated_at = ? WHERE id = ? AND current_session = ?", se.Status, se.UpdatedAt, se.SandboxID, se.ID)
		if err != nil {
			return err
		}
	}
	if !first || se.Usage == nil {
		return nil
	}
	u := se.Usage
	_, err = tx.ExecContext(ctx, `UPDATE sandboxes SET egress_bytes = egress_bytes + ?, ingress_bytes = ingress_bytes + ?,
		cpu_ms = cpu_ms + ?, duration_ms = duration_ms + ? WHERE id = ?`, u.EgressBytes, u.IngressBytes, u.CPUMs, u.DurationMs, se.SandboxID)
	return err
}

func (s *sqliteStore) UnfinishedSessions(ctx context.Context) ([]Session, error) {
	list, err := query(ctx, s.read, scanSession, "SELECT "+sessionColumns+" FROM sessions e WHERE e.over = 0")
	if err != nil {
		return nil, fmt.Errorf("list unfinished sessions: %w", err)
	}
	return list, nil
}

func (s *sqliteStore) SessionIDs(ctx context.Context, sandboxID string) ([]string, error) {
	scan := func(r row) (string, error) {
		var id string
		err := r.Scan(&id)
		return id, err
	}
	list, err := query(ctx, s.read, scan, "SELECT id FROM sessions WHERE ?1 = '' OR sandbox = ?1", sandboxID)
	if err != nil {
		return nil, fmt.Errorf("list session ids: %w", err)
	}
	return list, nil
}

func (s *sqliteStore) ProjectOfSession(ctx context.Context, id string) (string, error) {
	var project string
	if err := s.read.QueryRowContext(ctx, "SELECT project FROM sessions WHERE id = ?", id).Scan(&project); err != nil {
		return "", fmt.Errorf("find session %s: %w", id, missing(err))
	}
	return project, nil
}

// query collects all rows.
func query[T any](ctx context.Context, db *sql.DB, scan func(row) (T, error), q string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := []T{}
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}
