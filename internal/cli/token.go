package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/control"
	"github.com/glovebox-dev/glovebox/internal/store"
)

func (a *app) tokenCommand() *cobra.Command {
	return group("token", "Tokens for the HTTP API", a.tokenCreateCommand())
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
func (a *app) makeToken(ctx context.Context, project string) (string, error) {
	if err := os.MkdirAll(a.dataDir, 0o700); err != nil {
		return "", fmt.Errorf("make the data directory: %w", err)
	}
	st, err := store.Open(ctx, filepath.Join(a.dataDir, "glovebox.db"))
	if err != nil {
		return "", err
	}
	defer st.Close()
	return control.NewToken(ctx, st, project)
}
