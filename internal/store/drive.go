package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/glovebox-dev/glovebox/api"
)

const driveColumns = "d.id, d.project, d.name, d.region, d.max_bytes, d.created_at, d.updated_at, d.layers"

func scanDrive(r row) (Drive, error) {
	var d Drive
	var layers []byte
	if err := r.Scan(&d.ID, &d.Project, &d.Name, &d.Region, &d.MaxBytes, &d.CreatedAt, &d.UpdatedAt, &layers); err != nil {
		return Drive{}, missing(err)
	}
	if err := json.Unmarshal(layers, &d.Layers); err != nil {
		return Drive{}, fmt.Errorf("decode drive %s: %w", d.ID, err)
	}
	return d, nil
}

func (s *sqliteStore) AddDrive(ctx context.Context, d Drive) error {
	err := s.update(ctx, lasting, func(tx *sql.Tx) error {
		layers, err := encode(d.Layers)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO drives (id, project, name, region, max_bytes, created_at, updated_at, layers) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			d.ID, d.Project, d.Name, d.Region, d.MaxBytes, d.CreatedAt, d.UpdatedAt, layers)
		if isUnique(err, "drives.name") {
			return ErrExists
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("add drive %q: %w", d.Name, err)
	}
	return nil
}

func (s *sqliteStore) Drive(ctx context.Context, project, nameOrID string) (Drive, error) {
	d, err := scanDrive(s.read.QueryRowContext(ctx, "SELECT "+driveColumns+
		" FROM drives d WHERE d.project = ?1 AND (d.name = ?2 OR d.id = ?2) ORDER BY d.id = ?2 LIMIT 1", project, nameOrID))
	if err != nil {
		return Drive{}, fmt.Errorf("find drive %q: %w", nameOrID, err)
	}
	return d, nil
}

func (s *sqliteStore) ListDrives(ctx context.Context, project string, q api.ListDrivesQuery) ([]Drive, string, error) {
	var lq listQuery
	lq.and("d.project = ?", project)
	if q.NamePrefix != "" {
		cond, args := likePrefix("d.name", q.NamePrefix)
		lq.and(cond, args...)
	}
	column, at := "d.created_at", func(d Drive) (any, string) { return d.CreatedAt, d.ID }
	switch q.SortBy {
	case api.SortName:
		column, at = "d.name", func(d Drive) (any, string) { return d.Name, d.ID }
	case api.SortUpdatedAt:
		column, at = "d.updated_at", func(d Drive) (any, string) { return d.UpdatedAt, d.ID }
	}
	text, args, err := lq.page("SELECT "+driveColumns+" FROM drives d", q.SortBy, column, "d.id", q.Page)
	if err != nil {
		return nil, "", fmt.Errorf("list drives: %w", err)
	}
	list, err := query(ctx, s.read, scanDrive, text, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list drives of project %q: %w", project, err)
	}
	list, next := cut(list, q.SortBy, q.Page, at)
	return list, next, nil
}

func (s *sqliteStore) DeleteDrive(ctx context.Context, id string) error {
	err := s.update(ctx, lasting, func(tx *sql.Tx) error {
		return one(tx.ExecContext(ctx, "DELETE FROM drives WHERE id = ?", id))
	})
	if err != nil {
		return fmt.Errorf("delete drive %s: %w", id, err)
	}
	return nil
}

func (s *sqliteStore) SaveDrives(ctx context.Context, states []DriveState) error {
	err := s.update(ctx, lasting, func(tx *sql.Tx) error { return saveDrives(ctx, tx, states) })
	if err != nil {
		return fmt.Errorf("save drives: %w", err)
	}
	return nil
}

func saveDrives(ctx context.Context, tx *sql.Tx, states []DriveState) error {
	for _, d := range states {
		layers, err := encode(d.Layers)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE drives SET layers = ?, updated_at = ? WHERE id = ?", layers, d.At, d.ID); err != nil {
			return fmt.Errorf("drive %s: %w", d.ID, err)
		}
	}
	return nil
}

func (s *sqliteStore) ReplaceDriveLayers(ctx context.Context, id string, old, layers []SnapshotLayer) error {
	err := s.replaceLayers(ctx, "UPDATE drives SET layers = ? WHERE id = ? AND layers = ?", id, old, layers)
	if err != nil {
		return fmt.Errorf("replace layers of drive %s: %w", id, err)
	}
	return nil
}
