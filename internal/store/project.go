package store

import (
	"context"
	"database/sql"
	"fmt"
)

func (s *sqliteStore) EnsureProject(ctx context.Context, name string, now int64) error {
	var found int
	if err := s.read.QueryRowContext(ctx, "SELECT count(*) FROM projects WHERE name = ?", name).Scan(&found); err != nil {
		return fmt.Errorf("find project %q: %w", name, err)
	}
	if found > 0 {
		return nil
	}
	err := s.update(ctx, lasting, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO projects (name, created_at) VALUES (?, ?) ON CONFLICT DO NOTHING", name, now)
		return err
	})
	if err != nil {
		return fmt.Errorf("make project %q: %w", name, err)
	}
	return nil
}

func (s *sqliteStore) AddToken(ctx context.Context, t Token) error {
	err := s.update(ctx, lasting, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO tokens (hash, project, created_at) VALUES (?, ?, ?)", t.Hash[:], t.Project, t.CreatedAt)
		return err
	})
	if err != nil {
		return fmt.Errorf("add token of project %q: %w", t.Project, err)
	}
	return nil
}

func (s *sqliteStore) FindToken(ctx context.Context, hash TokenHash) (Token, error) {
	t := Token{Hash: hash}
	err := s.read.QueryRowContext(ctx, "SELECT project, created_at FROM tokens WHERE hash = ?", hash[:]).Scan(&t.Project, &t.CreatedAt)
	if err != nil {
		return Token{}, fmt.Errorf("find token: %w", missing(err))
	}
	return t, nil
}

func (s *sqliteStore) FindKey(ctx context.Context, project, scope, key string, since int64) (Key, error) {
	k := Key{Project: project, Scope: scope, Key: key}
	var hash []byte
	err := s.read.QueryRowContext(ctx, "SELECT request, result, created_at FROM keys WHERE project = ? AND scope = ? AND key = ? AND created_at >= ?",
		project, scope, key, since).Scan(&hash, &k.ResultID, &k.CreatedAt)
	if err != nil {
		return Key{}, fmt.Errorf("find idempotency key: %w", missing(err))
	}
	copy(k.RequestHash[:], hash)
	return k, nil
}

// keyLife in milliseconds: how long a key is recognised.
const keyLife = 24 * 60 * 60 * 1000

// putKey stores k in tx and forgets old keys.
func putKey(ctx context.Context, tx *sql.Tx, k *Key) error {
	if k == nil {
		return nil
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM keys WHERE created_at < ?", k.CreatedAt-keyLife); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO keys (project, scope, key, request, result, created_at) VALUES (?, ?, ?, ?, ?, ?)",
		k.Project, k.Scope, k.Key, k.RequestHash[:], k.ResultID, k.CreatedAt)
	if isUnique(err, "keys.") {
		return ErrKeyUsed
	}
	return err
}
