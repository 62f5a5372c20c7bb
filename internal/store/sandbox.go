package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
)

func (s *sqliteStore) CreateSandbox(ctx context.Context, sb Sandbox, se Session, key *Key) error {
	// Not lasting: until the session runs nobody was told of it.
	err := s.update(ctx, quick, func(tx *sql.Tx) error {
		spec, ports, tags, err := encodeSandbox(sb)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO sandboxes (id, project, name, created_at, updated_at, status, status_updated_at, current_session, current_snapshot, rolled_back, ports, tags, spec)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			sb.ID, sb.Project, sb.Name, sb.CreatedAt, sb.UpdatedAt, sb.Status, sb.StatusUpdatedAt, sb.CurrentSessionID, sb.CurrentSnapshotID, sb.RolledBack, ports, tags, spec)
		if isUnique(err, "sandboxes.name") {
			return ErrExists
		}
		if err != nil {
			return err
		}
		if err := putSideTables(ctx, tx, sb); err != nil {
			return err
		}
		if err := insertSession(ctx, tx, se); err != nil {
			return err
		}
		if err := useSnapshot(ctx, tx, se.SourceSnapshotID, se.CreatedAt); err != nil {
			return err
		}
		return putKey(ctx, tx, key)
	})
	if err != nil {
		return fmt.Errorf("create sandbox %q: %w", sb.Name, err)
	}
	return nil
}

func encodeSandbox(sb Sandbox) (spec, ports, tags string, err error) {
	if spec, err = encode(sb.SandboxSpec); err != nil {
		return "", "", "", err
	}
	if ports, err = encode(sb.Ports); err != nil {
		return "", "", "", err
	}
	tags, err = encode(sb.Tags)
	return spec, ports, tags, err
}

// putSideTables replaces the rows by which tags and subdomains are searched.
func putSideTables(ctx context.Context, tx *sql.Tx, sb Sandbox) error {
	for _, q := range []string{"DELETE FROM tags WHERE sandbox = ?", "DELETE FROM routes WHERE sandbox = ?"} {
		if _, err := tx.ExecContext(ctx, q, sb.ID); err != nil {
			return err
		}
	}
	for k, v := range sb.Tags {
		if _, err := tx.ExecContext(ctx, "INSERT INTO tags (sandbox, key, value) VALUES (?, ?, ?)", sb.ID, k, v); err != nil {
			return err
		}
	}
	for _, p := range sb.Ports {
		if _, err := tx.ExecContext(ctx, "INSERT INTO routes (subdomain, sandbox) VALUES (?, ?)", p.Subdomain, sb.ID); err != nil {
			return err
		}
	}
	return nil
}

const sandboxColumns = `s.id, s.project, s.name, s.created_at, s.updated_at, s.status, s.status_updated_at, s.current_session,
	s.current_snapshot, s.rolled_back, s.ports, s.tags, s.egress_bytes, s.ingress_bytes, s.cpu_ms, s.duration_ms, s.spec`

type row interface{ Scan(...any) error }

func scanSandbox(r row) (Sandbox, error) {
	var sb Sandbox
	var ports, tags, spec []byte
	err := r.Scan(&sb.ID, &sb.Project, &sb.Name, &sb.CreatedAt, &sb.UpdatedAt, &sb.Status, &sb.StatusUpdatedAt, &sb.CurrentSessionID,
		&sb.CurrentSnapshotID, &sb.RolledBack, &ports, &tags, &sb.Totals.EgressBytes, &sb.Totals.IngressBytes, &sb.Totals.CPUMs, &sb.Totals.DurationMs, &spec)
	if err != nil {
		return Sandbox{}, missing(err)
	}
	for _, part := range []struct {
		text []byte
		into any
	}{{ports, &sb.Ports}, {tags, &sb.Tags}, {spec, &sb.SandboxSpec}} {
		if err := json.Unmarshal(part.text, part.into); err != nil {
			return Sandbox{}, fmt.Errorf("decode sandbox %s: %w", sb.ID, err)
		}
	}
	return sb, nil
}

func (s *sqliteStore) Sandbox(ctx context.Context, project, name string) (Sandbox, error) {
	sb, err := scanSandbox(s.read.QueryRowContext(ctx, "SELECT "+sandboxColumns+" FROM sandboxes s WHERE s.project = ? AND s.name = ?", project, name))
	if err != nil {
		return Sandbox{}, fmt.Errorf("find sandbox %q: %w", name, err)
	}
	return sb, nil
}

func (s *sqliteStore) SandboxByID(ctx context.Context, id string) (Sandbox, error) {
	sb, err := scanSandbox(s.read.QueryRowContext(ctx, "SELECT "+sandboxColumns+" FROM sandboxes s WHERE s.id = ?", id))
	if err != nil {
		return Sandbox{}, fmt.Errorf("find sandbox %s: %w", id, err)
	}
	return sb, nil
}

func (s *sqliteStore) SandboxOfSubdomain(ctx context.Context, subdomain string) (Sandbox, error) {
	sb, err := scanSandbox(s.read.QueryRowContext(ctx, "SELECT "+sandboxColumns+" FROM routes r JOIN sandboxes s ON s.id = r.sandbox WHERE r.subdomain = ?", subdomain))
	if err != nil {
		return Sandbox{}, fmt.Errorf("find sandbox at subdomain %q: %w", subdomain, err)
	}
	return sb, nil
}

func (s *sqliteStore) UpdateSandbox(ctx context.Context, id string, change func(*Sandbox) error) (Sandbox, error) {
	var sb Sandbox
	err := s.update(ctx, lasting, func(tx *sql.Tx) error {
		var err error
		if sb, err = scanSandbox(tx.QueryRowContext(ctx, "SELECT "+sandboxColumns+" FROM sandboxes s WHERE s.id = ?", id)); err != nil {
			return err
		}
		before := sb.CurrentSnapshotID
		if err := change(&sb); err != nil {
			return err
		}
		if sb.CurrentSnapshotID != before {
			if err := useSnapshot(ctx, tx, sb.CurrentSnapshotID, sb.UpdatedAt); err != nil {
				return err
			}
		}
		spec, ports, tags, err := encodeSandbox(sb)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE sandboxes SET updated_at = ?, current_snapshot = ?, rolled_back = ?, ports = ?, tags = ?, spec = ? WHERE id = ?",
			sb.UpdatedAt, sb.CurrentSnapshotID, sb.RolledBack, ports, tags, spec, id)
		if err != nil {
			return err
		}
		return putSideTables(ctx, tx, sb)
	})
	if err != nil {
		return Sandbox{}, fmt.Errorf("update sandbox %s: %w", id, err)
	}
	return sb, nil
}

func (s *sqliteStore) DeleteSandbox(ctx context.Context, id string) error {
	err := s.update(ctx, lasting, func(tx *sql.Tx) error {
		// Keys of the sandbox, then those of its sessions' commands.
		if _, err := tx.ExecContext(ctx, "DELETE FROM keys WHERE result = ?", id); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "DELETE FROM keys WHERE result IN (SELECT c.id FROM commands c JOIN sessions e ON e.id = c.session WHERE e.sandbox = ?)", id)
		if err != nil {
			return err
		}
		return one(tx.ExecContext(ctx, "DELETE FROM sandboxes WHERE id = ?", id))
	})
	if err != nil {
		return fmt.Errorf("delete sandbox %s: %w", id, err)
	}
	return nil
}
