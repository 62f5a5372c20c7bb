package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
)

func (a *app) snapshotCommand() *cobra.Command {
	return group("snapshot", "Kept disks of sandboxes",
		a.snapshotCreateCommand(), a.snapshotLsCommand(), a.snapshotGetCommand(),
		a.snapshotDiffCommand(), a.snapshotTreeCommand(), a.snapshotRestoreCommand(), a.snapshotRmCommand())
}

func (a *app) snapshotCreateCommand() *cobra.Command {
	var expires string
	cmd := &cobra.Command{
		Use:   "create SANDBOX",
		Short: "Keep the disk of a sandbox, which stops, and print the snapshot's id",
		Long: `Keeps the disk of a sandbox as a snapshot and prints its id. The sandbox stops;
if it is persistent, the next command starts it again. glovebox create --snapshot
makes sandboxes of it.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var o client.SnapshotOptions
			if expires != "" {
				d, err := parseExpiry("--expires", expires)
				if err != nil {
					return err
				}
				o.Expiration = &d
			}
			sandbox, err := a.sandbox(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			snapshot, err := sandbox.Snapshot(cmd.Context(), o)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(snapshot)
			}
			_, err = fmt.Fprintln(a.out, snapshot.ID)
			return err
		},
	}
	cmd.Flags().StringVar(&expires, "expires", "", "when it goes after its last use, such as 7d, or never (default: the sandbox's own, or 30d)")
	return cmd
}

func (a *app) snapshotLsCommand() *cobra.Command {
	var all, quiet bool
	cmd := &cobra.Command{
		Use:     "ls [SANDBOX]",
		Aliases: []string{"list"},
		Short:   "List snapshots, of one sandbox or of all",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			list := []api.Snapshot{}
			for s, err := range c.ListSnapshots(cmd.Context(), strings.Join(args, "")) {
				if err != nil {
					return err
				}
				if all || s.Status == api.SnapshotCreated {
					list = append(list, s)
				}
			}
			return a.printSnapshots(list, quiet)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "deleted ones too")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only the ids")
	return cmd
}

func (a *app) printSnapshots(list []api.Snapshot, quiet bool) error {
	if a.json {
		return a.printJSON(list)
	}
	if quiet {
		for _, s := range list {
			fmt.Fprintln(a.out, s.ID)
		}
		return nil
	}
	now := time.Now()
	var rows [][]string
	for _, s := range list {
		rows = append(rows, []string{s.ID, s.SandboxName, string(s.Status), s.CreationMethod, size(s.SizeBytes), ago(millis(s.CreatedAt), now), expiry(s, now)})
	}
	a.table([]string{"SNAPSHOT", "SANDBOX", "STATUS", "MADE", "SIZE", "CREATED", "EXPIRES"}, rows)
	return nil
}

func expiry(s api.Snapshot, now time.Time) string {
	switch {
	case s.Status != api.SnapshotCreated:
		return "-"
	case s.ExpiresAt == 0:
		return "never"
	}
	d := millis(s.ExpiresAt).Sub(now)
	if d > 48*time.Hour {
		return fmt.Sprintf("in %dd", int(d.Hours()/24))
	}
	return "in " + d.Round(time.Second).String()
}

func (a *app) snapshotGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get SNAPSHOT",
		Short: "Print what is known of a snapshot as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			snapshot, err := c.GetSnapshot(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printJSON(snapshot)
		},
	}
}

func (a *app) snapshotRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm SNAPSHOT…",
		Short: "Delete snapshots; what was made from them stays",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return a.forEach(cmd.Context(), ids, func(ctx context.Context, c *client.Client, id string) error {
				_, err := c.DeleteSnapshot(ctx, id)
				return err
			})
		},
	}
}

func (a *app) snapshotRestoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restore SANDBOX SNAPSHOT",
		Short: "Have a sandbox start from a snapshot the next time",
		Long: `Has a sandbox start from a snapshot the next time, in place of its last one. One
that runs goes on until it stops; what it has written is kept as a snapshot too.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			sandbox, err := a.sandbox(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return sandbox.Update(cmd.Context(), api.UpdateSandboxRequest{CurrentSnapshotID: args[1]})
		},
	}
}
