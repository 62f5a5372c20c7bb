package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
)

func (a *app) netCommand() *cobra.Command {
	return group("net", "What sandboxes do in the network", a.netLogCommand(), a.netUsageCommand(), a.netSuggestCommand())
}

func (a *app) netLogCommand() *cobra.Command {
	var follow bool
	var since int64
	cmd := &cobra.Command{
		Use:   "log SANDBOX",
		Short: "Print what was decided about the traffic of a sandbox",
		Long: `Prints every look-up, connection and datagram of the sandbox's current session
with what was decided about it and why, and the bytes that it moved. The latest
1024 records are kept; net usage has the sums of all. Works after the sandbox has
stopped, too, until the server is restarted or has no room for it.

With --follow it goes on until the sandbox stops, and the end of a connection is
a line of its own. With --json that is one record a line; the seq of the last one
is what --since takes to go on from there.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sandbox, err := a.sandbox(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if follow {
				return a.followNetwork(cmd.Context(), sandbox, since)
			}
			log, err := sandbox.NetworkLog(cmd.Context(), since)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(log)
			}
			a.noteDropped(log.Dropped)
			a.table(netColumns, netRows(log.Records))
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the sandbox stops")
	cmd.Flags().Int64Var(&since, "since", 0, "only what comes after the record of this number")
	return cmd
}

var netColumns = []string{"TIME", "VERDICT", "KIND", "TARGET", "ADDRESS", "IN", "OUT", "RULE"}

// netRows makes a line of each decision and the end of what it let through.
func netRows(records []api.NetworkRecord) [][]string {
	ends := map[int64]api.NetworkRecord{}
	decided := map[int64]bool{}
	for _, r := range records {
		if r.Event == api.NetworkEnd {
			ends[r.Of] = r
		} else {
			decided[r.Seq] = true
		}
	}
	var rows [][]string
	for _, r := range records {
		end, ended := ends[r.Seq]
		switch {
		case r.Event == api.NetworkEnd && decided[r.Of]:
			continue
		case ended:
			r.Transfer, r.Name = end.Transfer, end.Name
			r.Rule = joinReasons(r.Rule, end.Reason)
		}
		rows = append(rows, netRow(r))
	}
	return rows
}

func netRow(r api.NetworkRecord) []string {
	verdict, why := r.Verdict, r.Rule
	switch {
	case r.Event == api.NetworkEnd:
		verdict, why = "ended", joinReasons(r.Rule, r.Reason)
	case r.Verdict == api.VerdictDeny:
		why = joinReasons(r.Rule, r.Reason)
	}
	kind := r.Protocol
	if r.Query != "" {
		kind += " " + r.Query
	}
	in, out := "-", "-"
	if r.Transfer != nil {
		in, out = size(r.Transfer.Ingress), size(r.Transfer.Egress)
	}
	address := r.Address
	if address == "" {
		address = "-"
	}
	return []string{time.UnixMilli(r.Time).Format("15:04:05.000"), verdict, kind, netTarget(r), address, in, out, why}
}

// netTarget is what the sandbox wanted: a name or address, with its port.
func netTarget(r api.NetworkRecord) string {
	target := r.Name
	if target == "" {
		target = r.Address
	}
	if r.Port != 0 {
		target = net.JoinHostPort(target, strconv.Itoa(r.Port))
	}
	if r.Method != "" {
		target = strings.TrimSpace(r.Method + " " + target + r.Path)
	}
	return target
}

func joinReasons(rule, reason string) string {
	if reason == "" {
		return rule
	}
	return rule + ": " + reason
}

func (a *app) noteDropped(n int64) {
	if n > 0 {
		a.note("glovebox: %d older records are no longer kept", n)
	}
}

// followNetwork prints records as they come; the columns are as wide as most
// contents, since what comes is not known.
func (a *app) followNetwork(ctx context.Context, sandbox *client.Sandbox, since int64) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	for r, err := range sandbox.FollowNetworkLog(ctx, since) {
		switch {
		case err != nil:
			return err
		case a.json:
			if err := enc.Encode(r); err != nil {
				return err
			}
		case r.Event == api.NetworkDropped:
			a.noteDropped(r.Dropped)
		default:
			row := netRow(r)
			for i := range row {
				row[i] = printable(row[i])
			}
			if _, err := fmt.Fprintf(a.out, "%s  %-7s  %-8s  %-32s  %-15s  %9s  %9s  %s\n", row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *app) netUsageCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "usage SANDBOX",
		Short: "Print what a sandbox has moved, by name",
		Long: `Prints the sums of the sandbox's current session by name, and by address where no
name led to it, most traffic first. The last line is the whole session's, which
includes what came through its ports.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sandbox, err := a.sandbox(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			sum, err := sandbox.NetworkSummary(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(sum)
			}
			var rows [][]string
			for _, s := range sum.Sums {
				rows = append(rows, sumRow(s.Name+s.Address, s))
			}
			if sum.Other != nil {
				rows = append(rows, sumRow("(others)", *sum.Other))
			}
			rows = append(rows, []string{"(all)", "", "", "", "", size(sum.Transfer.Ingress), size(sum.Transfer.Egress)})
			a.table([]string{"NAME", "LOOKUPS", "CONNECTIONS", "UDP", "REFUSED", "IN", "OUT"}, rows)
			return nil
		},
	}
}

func sumRow(name string, s api.NetworkSum) []string {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	return []string{name, n(s.Lookups), n(s.Connections), n(s.Datagrams), n(s.Refused), size(s.Transfer.Ingress), size(s.Transfer.Egress)}
}
