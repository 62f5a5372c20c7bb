package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
)

func (s *sqliteStore) CreateCommand(ctx context.Context, c Command, key *Key) error {
	err := s.update(ctx, quick, func(tx *sql.Tx) error {
		data, err := encode(c.CommandData)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO commands (id, session, started_at, exit_code, data) VALUES (?, ?, ?, ?, ?)", c.ID, c.SessionID, c.StartedAt, c.ExitCode, data)
		if err != nil {
			return err
		}
		return putKey(ctx, tx, key)
	})
	if err != nil {
		return fmt.Errorf("create command %s: %w", c.ID, err)
	}
	return nil
}

func (s *sqliteStore) UpdateCommand(ctx context.Context, c Command) error {
	err := s.update(ctx, quick, func(tx *sql.Tx) error {
		data, err := encode(c.CommandData)
		if err != nil {
			return err
		}
		return one(tx.ExecContext(ctx, "UPDATE commands SET exit_code = ?, data = ? WHERE id = ?", c.ExitCode, data, c.ID))
	})
	if err != nil {
		return fmt.Errorf("update command %s: %w", c.ID, err)
	}
	return nil
}

func (s *sqliteStore) DeleteCommand(ctx context.Context, id string) error {
	err := s.update(ctx, quick, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM keys WHERE result = ?", id); err != nil {
			return err
		}
		return one(tx.ExecContext(ctx, "DELETE FROM commands WHERE id = ?", id))
	})
	if err != nil {
		return fmt.Errorf("delete command %s: %w", id, err)
	}
	return nil
}

const commandColumns = "id, session, started_at, exit_code, data"

func scanCommand(r row) (Command, error) {
	var c Command
	var data []byte
	if err := r.Scan(&c.ID, &c.SessionID, &c.StartedAt, &c.ExitCode, &data); err != nil {
		return Command{}, missing(err)
	}
	if err := json.Unmarshal(data, &c.CommandData); err != nil {
		return Command{}, fmt.Errorf("decode command %s: %w", c.ID, err)
	}
	return c, nil
}

func (s *sqliteStore) Command(ctx context.Context, sessionID, id string) (Command, error) {
	c, err := scanCommand(s.read.QueryRowContext(ctx, "SELECT "+commandColumns+" FROM commands WHERE id = ? AND session = ?", id, sessionID))
	if err != nil {
		return Command{}, fmt.Errorf("find command %s: %w", id, err)
	}
	return c, nil
}

func (s *sqliteStore) ListCommands(ctx context.Context, sessionID string) ([]Command, error) {
	list, err := query(ctx, s.read, scanCommand, "SELECT "+commandColumns+" FROM commands WHERE session = ? ORDER BY seq", sessionID)
	if err != nil {
		return nil, fmt.Errorf("list commands of session %s: %w", sessionID, err)
	}
	return list, nil
}
