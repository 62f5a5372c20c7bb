package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
)

func (a *app) snapshotTreeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tree SANDBOX|SNAPSHOT",
		Short: "Show where a snapshot comes from and what was made of it",
		Long: `Shows where a sandbox's current snapshot, or another one, comes from and what was
made of it: the latest at the top, its other branches beside it.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			return a.tree(cmd.Context(), c, args[0])
		},
	}
}

func (a *app) tree(ctx context.Context, c *client.Client, name string) error {
	id := name
	if !strings.HasPrefix(name, api.SnapshotPrefix) {
		sandbox, err := c.GetSandbox(ctx, name)
		if err != nil {
			return err
		}
		if id = sandbox.Info().CurrentSnapshotID; id == "" {
			return fail("sandbox "+name+" has no snapshot", "glovebox snapshot create "+name+" takes one")
		}
	}
	anchor, err := c.SnapshotNode(ctx, id)
	if err != nil {
		return err
	}
	line := []api.SnapshotNode{}
	for n, err := range c.SnapshotDescendants(ctx, id) {
		if err != nil {
			return err
		}
		line = append(line, n)
	}
	slices.Reverse(line)
	line = append(line, anchor)
	for n, err := range c.SnapshotAncestors(ctx, id) {
		if err != nil {
			return err
		}
		line = append(line, n)
	}
	return a.printTree(line, id)
}

func (a *app) printTree(line []api.SnapshotNode, anchor string) error {
	if a.json {
		return a.printJSON(line)
	}
	now := time.Now()
	show := func(s api.Snapshot) string {
		text := fmt.Sprintf("%s  %s  %s  %s", s.ID, printable(s.SandboxName), size(s.SizeBytes), ago(millis(s.CreatedAt), now))
		if s.Status != api.SnapshotCreated {
			text += "  " + string(s.Status)
		}
		return text
	}
	for _, n := range line {
		mark := "o"
		if n.Snapshot.ID == anchor {
			mark = "*"
		}
		fmt.Fprintf(a.out, "%s %s\n", mark, show(n.Snapshot))
		for _, s := range n.Siblings {
			fmt.Fprintf(a.out, "| o %s\n", show(s))
		}
	}
	return nil
}
