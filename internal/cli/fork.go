package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/glovebox-dev/glovebox/api"
)

func (a *app) forkCommand() *cobra.Command {
	var f sandboxFlags
	var k keepFlags
	var ephemeral bool
	cmd := &cobra.Command{
		Use:   "fork SANDBOX [flags]",
		Short: "Copy a sandbox, running or not, and print the copy's name",
		Long: `Copies a sandbox with its disk as it is now, its environment and its settings,
and prints the copy's name, and the address of each port. The source goes on.
Each flag replaces what would be copied; with --image the disk stays behind.`,
		Example: `glovebox fork web --name web-2
glovebox fork web --cpus 4 --env DEBUG=1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := f.request(a)
			if err != nil {
				return err
			}
			fork := forkOf(req, cmd.Flags())
			if fork.SnapshotExpiration, fork.KeepLastSnapshots, err = k.values(); err != nil {
				return err
			}
			if cmd.Flags().Changed("ephemeral") {
				persistent := !ephemeral
				fork.Persistent = &persistent
			}
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			sandbox, err := c.ForkSandbox(cmd.Context(), args[0], fork)
			if err != nil {
				return err
			}
			return a.printMade(sandbox)
		},
	}
	f.register(cmd.Flags(), "")
	for _, name := range []string{"image", "network", "cpus"} { // the source's, not the server's
		flag := cmd.Flags().Lookup(name)
		flag.Usage, _, _ = strings.Cut(flag.Usage, " (default")
	}
	cmd.Flags().BoolVar(&ephemeral, "ephemeral", false, "keep nothing of the copy after its stop")
	k.register(cmd.Flags())
	return cmd
}

// forkOf is a fork with those parts of a create call that flags were given for.
func forkOf(req api.CreateSandboxRequest, flags *pflag.FlagSet) api.ForkSandboxRequest {
	out := api.ForkSandboxRequest{
		Name: req.Name, Image: req.Image, Timeout: req.Timeout, Resources: req.Resources, NetworkPolicy: req.NetworkPolicy,
	}
	if flags.Changed("port") {
		out.Ports = &req.Ports
	}
	if flags.Changed("env") {
		out.Env = &req.Env
	}
	if flags.Changed("tag") {
		out.Tags = &req.Tags
	}
	return out
}

// keepFlags say how long snapshots stay.
type keepFlags struct {
	expires string
	last    int
}

func (f *keepFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.expires, "snapshots-expire", "", "when snapshots go after their last use, such as 7d, or never (default 30d)")
	flags.IntVar(&f.last, "keep-last", 0, "how many snapshots to keep, 1 to 10; older ones are deleted (default all)")
}

func (f *keepFlags) values() (expiration api.Int, keep *api.KeepLastSnapshots, err error) {
	if f.expires != "" {
		d, err := parseExpiry("--snapshots-expire", f.expires)
		if err != nil {
			return expiration, nil, err
		}
		expiration = api.IntOf(d.Milliseconds())
	}
	if f.last != 0 {
		keep = &api.KeepLastSnapshots{Count: api.IntOf(int64(f.last))}
	}
	return expiration, keep, nil
}

// parseExpiry reads a duration that may be in days, or never, which is 0.
func parseExpiry(flag, s string) (time.Duration, error) {
	if s == "never" || s == "0" {
		return 0, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n <= 36500 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
		return 0, fail(fmt.Sprintf("%s %q is no number of days", flag, s), "write it like "+flag+" 7d, "+flag+" 12h or "+flag+" never")
	}
	return parseDuration(flag, s)
}
