package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/api"
)

func (a *app) pruneCommand() *cobra.Command {
	var req api.PruneRequest
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove what nothing needs from the server's disk",
		Long: `Removes layers that no snapshot, drive or sandbox has, and logs of what was
deleted; with --images also images that nothing was made from, but for the
default one. It is safe beside whatever runs. Snapshots that expire go by
themselves.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			got, err := c.Prune(cmd.Context(), req)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(got)
			}
			var rows [][]string
			for _, r := range got.Removed {
				rows = append(rows, []string{r.Kind, r.Name, size(r.Bytes)})
			}
			if len(rows) > 0 {
				a.table([]string{"KIND", "NAME", "SIZE"}, rows)
			}
			what := "freed"
			if req.DryRun {
				what = "would be freed"
			}
			_, err = fmt.Fprintf(a.out, "%s %s\n", size(got.FreedBytes), what)
			return err
		},
	}
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "tell what would be removed, and remove nothing")
	cmd.Flags().BoolVar(&req.Images, "images", false, "also images that nothing was made from")
	return cmd
}
