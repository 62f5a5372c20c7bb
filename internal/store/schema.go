package store

import (
	"context"
	"database/sql"
	"fmt"
)

// migrations bring a database from version i to i+1, each in a transaction of
// its own. Once released one is never changed.
var migrations = []string{`
CREATE TABLE projects (
	name TEXT PRIMARY KEY,
	created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE tokens (
	hash BLOB PRIMARY KEY,
	project TEXT NOT NULL,
	created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE sandboxes (
	id TEXT PRIMARY KEY,
	project TEXT NOT NULL,
	name TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	status TEXT NOT NULL,
	status_updated_at INTEGER NOT NULL,
	current_session TEXT NOT NULL,
	ports TEXT NOT NULL,
	tags TEXT NOT NULL,
	egress_bytes INTEGER NOT NULL DEFAULT 0,
	ingress_bytes INTEGER NOT NULL DEFAULT 0,
	cpu_ms INTEGER NOT NULL DEFAULT 0,
	duration_ms INTEGER NOT NULL DEFAULT 0,
	spec TEXT NOT NULL,
	UNIQUE (project, name)
) STRICT;
CREATE INDEX sandboxes_created ON sandboxes (project, created_at, id);
CREATE INDEX sandboxes_status_updated ON sandboxes (project, status_updated_at, id);
CREATE TABLE tags (
	sandbox TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
	key TEXT NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY (sandbox, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE routes (
	subdomain TEXT PRIMARY KEY,
	sandbox TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX routes_sandbox ON routes (sandbox);
CREATE TABLE sessions (
	id TEXT PRIMARY KEY,
	project TEXT NOT NULL,
	sandbox TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
	sandbox_name TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	status TEXT NOT NULL,
	over INTEGER NOT NULL,
	data TEXT NOT NULL
) STRICT;
CREATE INDEX sessions_created ON sessions (project, created_at, id);
CREATE INDEX sessions_sandbox ON sessions (sandbox, created_at, id);
CREATE INDEX sessions_unfinished ON sessions (id) WHERE over = 0;
CREATE TABLE commands (
	seq INTEGER PRIMARY KEY,
	id TEXT NOT NULL UNIQUE,
	session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
	started_at INTEGER NOT NULL,
	exit_code INTEGER,
	data TEXT NOT NULL
) STRICT;
CREATE INDEX commands_session ON commands (session, seq);
CREATE TABLE keys (
	project TEXT NOT NULL,
	scope TEXT NOT NULL,
	key TEXT NOT NULL,
	request BLOB NOT NULL,
	result TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	PRIMARY KEY (project, scope, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_created ON keys (created_at);
CREATE INDEX keys_result ON keys (result);
`, `
ALTER TABLE sandboxes ADD COLUMN current_snapshot TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN rolled_back INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sandboxes_snapshot ON sandboxes (current_snapshot) WHERE current_snapshot <> '';
CREATE TABLE snapshots (
	seq INTEGER PRIMARY KEY,
	id TEXT NOT NULL UNIQUE,
	project TEXT NOT NULL,
	sandbox TEXT NOT NULL,
	sandbox_name TEXT NOT NULL,
	session TEXT NOT NULL,
	parent TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	last_used_at INTEGER NOT NULL,
	expiration INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,
	status TEXT NOT NULL,
	layers TEXT NOT NULL,
	data TEXT NOT NULL
) STRICT;
CREATE INDEX snapshots_created ON snapshots (project, created_at, id);
CREATE INDEX snapshots_named ON snapshots (project, sandbox_name, created_at, id);
CREATE INDEX snapshots_sandbox ON snapshots (sandbox, seq);
CREATE INDEX snapshots_parent ON snapshots (parent, seq) WHERE parent <> '';
CREATE INDEX snapshots_expiring ON snapshots (expires_at) WHERE status = 'created' AND expires_at > 0;
`, `
CREATE TABLE drives (
	id TEXT PRIMARY KEY,
	project TEXT NOT NULL,
	name TEXT NOT NULL,
	region TEXT NOT NULL,
	max_bytes INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	layers TEXT NOT NULL,
	UNIQUE (project, name)
) STRICT;
CREATE INDEX drives_created ON drives (project, created_at, id);
CREATE INDEX drives_updated ON drives (project, updated_at, id);
`, `
CREATE INDEX snapshots_deleted ON snapshots (updated_at) WHERE status = 'deleted';
`}

// migrate brings the database to the version of this program.
func migrate(ctx context.Context, db *sql.DB) error {
	for {
		done, err := migrateOne(ctx, db)
		if done || err != nil {
			return err
		}
	}
}

// migrateOne takes one step. The version is read inside the transaction,
// since another process may be doing the same.
func migrateOne(ctx context.Context, db *sql.DB) (done bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after Commit
	var version int
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return false, err
	}
	if version > len(migrations) {
		return false, fmt.Errorf("%w: schema %d, this program knows %d; use the newer program", ErrNewer, version, len(migrations))
	}
	if version == len(migrations) {
		return true, nil
	}
	if _, err := tx.ExecContext(ctx, migrations[version]); err != nil {
		return false, fmt.Errorf("schema step %d: %w", version+1, err)
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version+1)); err != nil {
		return false, err
	}
	return false, tx.Commit()
}
