package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/control"
	"github.com/glovebox-dev/glovebox/internal/daemon"
	"github.com/glovebox-dev/glovebox/internal/store"
)

func (a *app) tokenCommand() *cobra.Command {
	return group("token", "Tokens for the HTTP API",
		a.tokenCreateCommand(), a.tokenLsCommand(), a.tokenRevokeCommand())
}

func (a *app) tokenCreateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "create --project P",
		Short: "Make a token and print it",
		Long: `Makes a token that works in one project alone, and prints just the token. It is
stored as a hash and cannot be shown again. Works beside a running server, which
knows it at once.`,
		Example: `export GLOVEBOX_TOKEN=$(glovebox token create --project demo)`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.project == "" {
				return usage(cmd, fmt.Errorf("--project is missing"))
			}
			token, err := a.makeToken(cmd.Context(), a.project)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]string{"token": token, "project": a.project})
			}
			_, err = fmt.Fprintln(a.out, token)
			return err
		},
	}
}

// makeToken stores a new token in the data directory.
func (a *app) makeToken(ctx context.Context, project string) (token string, err error) {
	err = a.withStore(ctx, func(st store.Store) error {
		token, err = control.NewToken(ctx, st, project)
		return err
	})
	return token, err
}

// withStore opens the data directory's store; beside a running server, too.
func (a *app) withStore(ctx context.Context, do func(store.Store) error) error {
	if err := os.MkdirAll(a.dataDir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	st, err := store.Open(ctx, filepath.Join(a.dataDir, daemon.StateFile))
	if err != nil {
		return err
	}
	return errors.Join(do(st), st.Close())
}

// tokenView is what can be shown of a token.
type tokenView struct {
	ID        string `json:"id"`
	Project   string `json:"project"`
	CreatedAt int64  `json:"createdAt"`
}

// tokenID names a token by the beginning of its hash, which tells nothing
// about the token itself.
func tokenID(h store.TokenHash) string { return hex.EncodeToString(h[:6]) }

func (a *app) tokenLsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List tokens, of all projects or of --project",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withStore(cmd.Context(), func(st store.Store) error {
				tokens, err := st.Tokens(cmd.Context(), a.project)
				if err != nil {
					return err
				}
				views := []tokenView{}
				rows := [][]string{}
				now := time.Now()
				for _, t := range tokens {
					views = append(views, tokenView{tokenID(t.Hash), t.Project, t.CreatedAt})
					rows = append(rows, []string{tokenID(t.Hash), t.Project, ago(millis(t.CreatedAt), now)})
				}
				if a.json {
					return a.printJSON(views)
				}
				a.table([]string{"ID", "PROJECT", "CREATED"}, rows)
				return nil
			})
		},
	}
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke TOKEN-OR-ID",
		Short: "Make a token invalid at once",
		Long:  "Makes a token invalid at once, named by itself or by its id in token ls.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd.Context(), func(st store.Store) error {
				tokens, err := st.Tokens(cmd.Context(), "")
				if err != nil {
					return err
				}
				hash := store.HashToken(args[0])
				for _, t := range tokens {
					if t.Hash == hash || tokenID(t.Hash) == strings.ToLower(args[0]) {
						return st.RemoveToken(cmd.Context(), t.Hash)
					}
				}
				return fail("no such token in "+a.dataDir, "see glovebox token ls")
			})
		},
	}
}
