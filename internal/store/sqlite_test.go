package store_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(dir, "a ?#%25.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestSQLite(t *testing.T) { storetest.Run(t, open) }

func TestSQLiteFilesArePrivate(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.EnsureProject(t.Context(), "p", 1); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		t.Fatal(entries, err)
	}
	for _, e := range entries {
		if i, err := e.Info(); err != nil || i.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", e.Name(), i.Mode(), err)
		}
	}
}

func TestSQLiteRefusesNewerData(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("PRAGMA user_version = 1000"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), path); !errors.Is(err, store.ErrNewer) {
		t.Fatal(err)
	}
}

func TestSQLiteNamesTheFileThatItCannotOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(path, []byte("this is no database, and long enough to be seen as none ........................................"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := store.Open(t.Context(), path); err == nil {
		s.Close()
		t.Fatal("opened")
	}
}

func BenchmarkCommand(b *testing.B) {
	s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "x.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	sb := store.Sandbox{ID: "s", Name: "s", CurrentSessionID: "e"}
	if err := s.CreateSandbox(b.Context(), sb, store.Session{ID: "e", SandboxID: "s"}, nil); err != nil {
		b.Fatal(err)
	}
	b.Run("quick", func(b *testing.B) {
		for b.Loop() {
			c := store.Command{ID: api.NewID(api.CommandPrefix), SessionID: "e"}
			if err := errors.Join(s.CreateCommand(b.Context(), c, nil), s.UpdateCommand(b.Context(), c)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("lasting", func(b *testing.B) {
		for b.Loop() {
			if err := s.UpdateSession(b.Context(), store.Session{ID: "e", SandboxID: "s"}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
