package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/api"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what the server runs, its warm pool, and what takes up its disk",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			status, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			disk, err := c.DiskUse(cmd.Context())
			told := err == nil // else the token is one project's, or the server older
			if a.json {
				out := struct {
					api.Status
					Disk *api.DiskUse `json:"disk,omitempty"`
				}{Status: status}
				if told {
					out.Disk = &disk
				}
				return a.printJSON(out)
			}
			fmt.Fprintf(a.out, "server    %s, driver %s, up %s\n", status.Version, status.Driver,
				time.Since(millis(status.StartedAt)).Round(time.Second))
			fmt.Fprintf(a.out, "sessions  %d running\n", status.RunningSessions)
			fmt.Fprintf(a.out, "machines  %d\n", status.Machines)
			fmt.Fprintf(a.out, "memory    %s of %s promised\n", size(status.MemoryCommittedBytes), size(status.MemoryLimitBytes))
			if told {
				a.printDisk(disk)
			}
			if len(status.Pool) == 0 {
				return nil
			}
			fmt.Fprintln(a.out)
			var rows [][]string
			for _, p := range status.Pool {
				rows = append(rows, []string{
					p.Image, strconv.Itoa(p.VCPUs), size(p.MemoryBytes),
					fmt.Sprintf("%d of %d", p.Ready, p.Target), strconv.Itoa(p.Starting),
					strconv.FormatInt(p.Hits, 10), strconv.FormatInt(p.Misses, 10),
				})
			}
			a.table([]string{"POOL OF", "CPUS", "MEMORY", "READY", "STARTING", "HITS", "MISSES"}, rows)
			return nil
		},
	}
}

func (a *app) printDisk(disk api.DiskUse) {
	fmt.Fprintf(a.out, "disk      %s free\n\n", size(disk.FreeBytes))
	var rows [][]string
	for _, k := range disk.Kinds {
		name := k.Kind
		if name == api.DiskLayers {
			name = "unused (glovebox prune)"
		}
		rows = append(rows, []string{name, strconv.Itoa(k.Count), size(k.Bytes)})
	}
	a.table([]string{"ON DISK", "COUNT", "SIZE"}, rows)
}
