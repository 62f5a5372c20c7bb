package store

import (
	"context"
	"database/sql"
	"fmt"
)

func (s *sqliteStore) Tokens(ctx context.Context, project string) ([]Token, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT hash, project, created_at FROM tokens
		WHERE ? = '' OR project = ? ORDER BY created_at, hash`, project, project)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	defer rows.Close()
	list := []Token{}
	for rows.Next() {
		var t Token
		var hash []byte
		if err := rows.Scan(&hash, &t.Project, &t.CreatedAt); err != nil {
			return nil, fmt.Errorf("list tokens: %w", err)
		}
		copy(t.Hash[:], hash)
		list = append(list, t)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	return list, nil
}

func (s *sqliteStore) RemoveToken(ctx context.Context, hash TokenHash) error {
	err := s.update(ctx, lasting, func(tx *sql.Tx) error {
		return one(tx.ExecContext(ctx, "DELETE FROM tokens WHERE hash = ?", hash[:]))
	})
	if err != nil {
		return fmt.Errorf("remove token: %w", err)
	}
	return nil
}
