package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"

	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"
)

// durability of a write.
type durability string

const (
	// lasting writes are on the disk when the call returns.
	lasting durability = "FULL"
	// quick writes survive the death of the process, but not a power cut;
	// they cost no wait for the disk.
	quick durability = "NORMAL"
)

// sqliteStore has one connection that writes and a few that read, so that
// readers never wait for a writer (WAL) and writers never fail with "busy"
// among themselves. Another process may write too; busy_timeout is for that.
type sqliteStore struct {
	read *sql.DB

	mu    sync.Mutex // held while write is used
	write *sql.DB    // one connection
	sync  durability // what the connection is set to now
}

// Open opens, makes or migrates the database at path. The file is readable
// by its owner only. Close it.
func Open(ctx context.Context, path string) (Store, error) {
	// SQLite gives the journal files the mode of the database.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	s := &sqliteStore{sync: lasting}
	if s.write, err = sql.Open("sqlite", dsn(path, "_txlock=immediate&_pragma=synchronous(FULL)")); err == nil {
		s.write.SetMaxOpenConns(1)
		err = migrate(ctx, s.write)
	}
	if err == nil {
		s.read, err = sql.Open("sqlite", dsn(path, "_pragma=query_only(1)"))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", path, err), s.Close())
	}
	s.read.SetMaxOpenConns(4)
	s.read.SetMaxIdleConns(4)
	return s, nil
}

func dsn(path, more string) string {
	u := url.URL{Path: path}
	return "file:" + u.EscapedPath() + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)&" + more
}

func (s *sqliteStore) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.read, s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// update runs f in a transaction of its own.
func (s *sqliteStore) update(ctx context.Context, d durability, f func(tx *sql.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sync != d {
		// Not possible inside a transaction.
		if _, err := s.write.ExecContext(ctx, "PRAGMA synchronous = "+string(d)); err != nil {
			return fmt.Errorf("set durability: %w", err)
		}
		s.sync = d
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after Commit
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// isUnique tells whether err is a violation of a uniqueness rule on column.
func isUnique(err error, column string) bool {
	se, ok := errors.AsType[*sqlite.Error](err)
	if !ok || (se.Code() != sqlitelib.SQLITE_CONSTRAINT_UNIQUE && se.Code() != sqlitelib.SQLITE_CONSTRAINT_PRIMARYKEY) {
		return false
	}
	return strings.Contains(se.Error(), column)
}

// one checks that a statement touched a row.
func one(res sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// missing turns "no rows" into ErrNotFound.
func missing(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}

// encode returns v for a JSON column, which holds text.
func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
