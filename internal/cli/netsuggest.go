package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
)

// networkLearn is, for --network, allow-all and a suggestion at the end.
const networkLearn = "learn"

func (a *app) netSuggestCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "suggest SANDBOX",
		Short: "Print the smallest network policy that would have sufficed",
		Long: `Prints, as JSON that --network @FILE takes, the smallest policy under which all
that the sandbox's current session did in the network would have been allowed.
Start it with --network learn, or allow-all, and let it do its work first.

Names are allowed one by one. An address that the sandbox connected to without
looking a name up is allowed as such. What was refused stays refused.`,
		Example: `glovebox create --name job --network learn
glovebox exec job -- npm ci
glovebox net suggest job >policy.json
glovebox run --network @policy.json -- npm ci`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sandbox, err := a.sandbox(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			policy, err := a.suggest(cmd.Context(), sandbox)
			if err != nil {
				return err
			}
			return a.printJSON(policy)
		},
	}
}

// suggest returns the policy and tells its notes.
func (a *app) suggest(ctx context.Context, sandbox *client.Sandbox) (api.NetworkPolicy, error) {
	sum, err := sandbox.NetworkSummary(ctx)
	if err != nil {
		return api.NetworkPolicy{}, err
	}
	policy, notes := client.SuggestPolicy(sum)
	for _, n := range notes {
		a.note("glovebox: %s", printable(n))
	}
	return policy, nil
}

// tellLearned prints what --network learn has found, on stderr: stdout is the
// command's.
func (a *app) tellLearned(ctx context.Context, sandbox *client.Sandbox) error {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	policy, err := a.suggest(ctx, sandbox)
	if err != nil {
		return err
	}
	text, err := json.Marshal(policy)
	if err != nil {
		return fmt.Errorf("encode the suggested policy: %w", err)
	}
	a.note("glovebox: this network policy would have sufficed (save it, and run with --network @FILE):\n%s", text)
	return nil
}
