package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
)

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs SANDBOX [COMMAND-ID]",
		Short: "Print the output of a command, by default of the last one",
		Long: `Prints what a command has written, stdout to stdout and stderr to stderr: the
one with the id that exec --detach printed, or the last one. With --follow it
goes on until the command's end. Works after the sandbox has stopped, too.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			command, err := a.findCommand(cmd.Context(), args)
			if err != nil {
				return err
			}
			return a.printLogs(cmd.Context(), command, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the command has ended")
	return cmd
}

func (a *app) findCommand(ctx context.Context, args []string) (*client.Command, error) {
	c, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	sandbox, err := c.GetSandbox(ctx, args[0])
	if err != nil {
		return nil, err
	}
	if len(args) == 2 {
		return sandbox.Command(ctx, args[1])
	}
	commands, err := sandbox.Commands(ctx)
	if err != nil {
		return nil, err
	}
	if len(commands) == 0 {
		return nil, fail(fmt.Sprintf("no command was run in the current session of %s", args[0]), "run one with glovebox exec")
	}
	return commands[len(commands)-1], nil
}

// quiet is how long a running command must be silent for its past output to
// count as read. The server sends that in one go.
const quiet = 300 * time.Millisecond

// printLogs prints the command's output; without follow, of a command that
// still runs, what there is so far.
func (a *app) printLogs(ctx context.Context, command *client.Command, follow bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !follow && command.Info().ExitCode == nil {
		idle := time.AfterFunc(quiet, cancel)
		defer idle.Stop()
		for line, err := range command.Logs(ctx) {
			idle.Reset(quiet)
			if errors.Is(err, context.Canceled) {
				return nil
			}
			if err := a.printLine(line, err); err != nil {
				return err
			}
		}
		return nil
	}
	for line, err := range command.Logs(ctx) {
		if err := a.printLine(line, err); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printLine(line api.LogLine, err error) error {
	if err != nil {
		return err
	}
	w := a.out
	if line.Stream == api.Stderr {
		w = a.errOut
	}
	_, err = io.WriteString(w, line.Data)
	return err
}
