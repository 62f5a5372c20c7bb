package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
)

func (a *app) stopCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stop SANDBOX…",
		Short: "Stop sandboxes; the files of persistent ones are kept",
		Long: `Stops sandboxes. The files of persistent ones are kept, as the snapshot that is
printed, and the next command starts them again.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.forEach(cmd.Context(), names, func(ctx context.Context, c *client.Client, name string) error {
				sandbox, err := c.GetSandbox(ctx, name)
				if err != nil {
					return err
				}
				out, err := sandbox.Stop(ctx)
				if err != nil {
					return err
				}
				return a.printStopped(name, out)
			})
		},
	}
}

// printStopped prints the snapshot that a stop has left.
func (a *app) printStopped(name string, out api.StopSessionResponse) error {
	switch {
	case a.json:
		return a.printJSON(out)
	case out.Session.Status == api.StatusFailed:
		return fail("stop "+name+": "+out.Session.Reason, "look at the server's log")
	case out.Snapshot != nil:
		fmt.Fprintf(a.out, "%s  %s  %s\n", name, out.Snapshot.ID, size(out.Snapshot.SizeBytes))
	}
	return nil
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
