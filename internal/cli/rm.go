package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
)

func (a *app) rmCommand() *cobra.Command {
	var snapshots, force bool
	cmd := &cobra.Command{
		Use:   "rm SANDBOX…",
		Short: "Stop and remove sandboxes",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.forEach(cmd.Context(), names, func(ctx context.Context, c *client.Client, name string) error {
				err := c.DeleteSandbox(ctx, name, snapshots)
				if e, ok := errors.AsType[*api.Error](err); ok && force && e.Code == api.CodeNotFound {
					return nil
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&snapshots, "snapshots", false, "remove their snapshots too")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "no error for one that does not exist")
	return cmd
}
