package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) snapshotDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff SNAPSHOT OTHER",
		Short: "Tell what is different in OTHER from SNAPSHOT",
		Long: `Tells the names that were added (+), changed (~) and deleted (-) in OTHER since
SNAPSHOT: contents, owners, modes, times and extended attributes count. A name
of a directory ends with a slash.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			diff, err := c.DiffSnapshots(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(diff)
			}
			signs := map[string]string{"added": "+", "changed": "~", "deleted": "-"}
			for _, change := range diff.Changes {
				slash := ""
				if change.Dir && change.Path != "/" {
					slash = "/"
				}
				fmt.Fprintf(a.out, "%s %s%s\n", signs[change.Kind], printable(change.Path), slash)
			}
			if diff.Omitted > 0 {
				a.note("%d more are left out", diff.Omitted)
			}
			return nil
		},
	}
}
