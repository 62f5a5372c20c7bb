package cli

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/client"
)

type execFlags struct {
	commandFlags
	env     []string
	timeout string
	detach  bool
}

func (a *app) execCommand() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec [flags] SANDBOX -- CMD [ARG…]",
		Short: "Run a command in a sandbox",
		Long: `Runs a command in a sandbox that exists, and starts the sandbox if it has
stopped and is persistent. Output is passed on as it comes, and so are the exit
code and, unless it is a terminal, stdin. Ctrl-C is sent to the command.

There is no shell between: for pipes and variables, run sh -c '…'.`,
		Example: `glovebox exec web -- python3 manage.py migrate
glovebox exec --sudo web -- apt-get install -y jq
glovebox exec -it web -- bash
id=$(glovebox exec --detach web -- sleep 60)`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.exec(cmd.Context(), f, args[0], args[1:])
		},
	}
	f.commandFlags.register(cmd.Flags())
	cmd.Flags().StringArrayVarP(&f.env, "env", "e", nil, "NAME=VALUE, or NAME to pass on its value here; repeatable")
	cmd.Flags().StringVar(&f.timeout, "timeout", "", "end the command and all its descendants after this time")
	cmd.Flags().BoolVarP(&f.detach, "detach", "d", false, "print the command's id and return")
	return cmd
}

func (a *app) exec(ctx context.Context, f execFlags, name string, argv []string) error {
	argv = withoutDashes(argv)
	env, err := a.splitEnv(f.env)
	if err != nil {
		return err
	}
	run := client.Cmd{Name: argv[0], Args: argv[1:], Dir: f.cwd, Env: env, Sudo: f.sudo}
	if f.timeout != "" {
		if run.Timeout, err = parseDuration("--timeout", f.timeout); err != nil {
			return err
		}
	}
	sandbox, err := a.sandbox(ctx, name)
	if err != nil {
		return err
	}
	if f.tty {
		return a.terminal(ctx, sandbox, run)
	}
	if !f.detach && a.passesStdin(f.interactive) {
		run.Stdin = a.in
	}
	command, err := sandbox.StartCommand(ctx, run)
	if err != nil {
		return err
	}
	if f.detach {
		if a.json {
			return a.printJSON(command.Info())
		}
		_, err := fmt.Fprintln(a.out, command.ID())
		return err
	}
	return a.attach(ctx, command, run.Stdin)
}

// withoutDashes drops the -- that stands between SANDBOX and CMD: the flag
// parser stops at SANDBOX and leaves it there.
func withoutDashes(argv []string) []string {
	if len(argv) > 1 && argv[0] == "--" {
		return argv[1:]
	}
	return argv
}

// passesStdin: a terminal is not read from unless asked to, so that a command
// that happens to read does not take what is typed for the shell.
func (a *app) passesStdin(interactive bool) bool {
	return interactive || !isTerminal(a.in)
}

// attach passes input and output on until the command's end. The end of ctx
// (Ctrl-C) goes to the command, which may take its time to end in good order.
func (a *app) attach(ctx context.Context, command *client.Command, stdin io.Reader) error {
	lasting := context.WithoutCancel(ctx)
	if stdin != nil {
		sending, cancel := context.WithCancel(lasting)
		defer cancel()
		// Its errors are the command's business, as those of a pipe are: it
		// sees the end of its input.
		go command.WriteStdin(sending, stdin) //nolint:errcheck
	}
	ended := make(chan struct{})
	defer close(ended)
	stop := context.AfterFunc(ctx, func() { a.interrupt(lasting, command, ended) })
	defer stop()
	if err := a.printLogs(lasting, command, true); err != nil {
		return err
	}
	if err := command.Wait(lasting); err != nil {
		return err
	}
	return codeOf(command)
}

// interruptGrace is how long a command may go on after Ctrl-C.
const interruptGrace = 5 * time.Second

func (a *app) interrupt(ctx context.Context, command *client.Command, ended <-chan struct{}) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		call, cancel := context.WithTimeout(ctx, interruptGrace)
		err := command.Kill(call, sig)
		cancel()
		if err != nil {
			a.note("%v", err)
		}
		select {
		case <-ended:
			return
		case <-time.After(interruptGrace):
		}
	}
}

// codeOf passes the command's exit code on.
func codeOf(command *client.Command) error {
	if code := command.ExitCode(); code != 0 {
		if code < 0 {
			return fail("the command's end is not known", "see glovebox logs and glovebox ls")
		}
		return exitCode(code)
	}
	return nil
}
