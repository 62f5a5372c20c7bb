package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
)

func (a *app) lsCommand() *cobra.Command {
	var o client.ListOptions
	var status string
	var quiet bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sandboxes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			o.Status = api.SessionStatus(status)
			sandboxes := []api.Sandbox{}
			for s, err := range c.ListSandboxes(cmd.Context(), o) {
				if err != nil {
					return err
				}
				sandboxes = append(sandboxes, s)
			}
			return a.printSandboxes(sandboxes, quiet)
		},
	}
	cmd.Flags().StringVar(&status, "status", "", "only those in this state, such as running or stopped")
	cmd.Flags().StringVar(&o.NamePrefix, "prefix", "", "only those whose name begins like this")
	cmd.Flags().StringVar(&o.Tag, "tag", "", "only those with this KEY:VALUE")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only the names")
	return cmd
}

func (a *app) printSandboxes(sandboxes []api.Sandbox, quiet bool) error {
	if a.json {
		return a.printJSON(sandboxes)
	}
	if quiet {
		for _, s := range sandboxes {
			fmt.Fprintln(a.out, s.Name)
		}
		return nil
	}
	now := time.Now()
	var rows [][]string
	for _, s := range sandboxes {
		expires := "-"
		if s.ExpiresAt != 0 {
			expires = "in " + time.UnixMilli(s.ExpiresAt).Sub(now).Round(time.Second).String()
		}
		rows = append(rows, []string{
			s.Name, string(s.Status), imageName(s), strconv.Itoa(s.VCPUs),
			size(int64(s.Memory) << 20), ago(millis(s.CreatedAt), now), expires,
		})
	}
	a.table([]string{"NAME", "STATUS", "IMAGE", "CPUS", "MEMORY", "CREATED", "EXPIRES"}, rows)
	return nil
}

// imageName leaves the digest out, which fills a line of its own.
func imageName(s api.Sandbox) string {
	if s.Image == "" {
		return s.Runtime
	}
	for i := range s.Image {
		if s.Image[i] == '@' {
			return s.Image[:i]
		}
	}
	return s.Image
}
