package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/client"
)

func (a *app) stopCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stop SANDBOX…",
		Short: "Stop sandboxes; the files of persistent ones are kept",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.forEach(cmd.Context(), names, func(ctx context.Context, c *client.Client, name string) error {
				sandbox, err := c.GetSandbox(ctx, name)
				if err != nil {
					return err
				}
				_, err = sandbox.Stop(ctx)
				return err
			})
		},
	}
}

// forEach does something with each sandbox: an error with one is no reason to
// leave out the others. All but the last are printed here.
func (a *app) forEach(ctx context.Context, names []string, do func(context.Context, *client.Client, string) error) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, name := range names {
		err := do(ctx, c, name)
		if err == nil {
			continue
		}
		if failed != nil {
			a.report(ctx, failed)
		}
		if failed = err; errors.Is(err, context.Canceled) {
			break
		}
	}
	return failed
}
