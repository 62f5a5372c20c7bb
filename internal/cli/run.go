package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
)

type runFlags struct {
	sandboxFlags
	commandFlags
	files  []string
	remove bool
	given  bool // --timeout was given
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] -- CMD [ARG…]",
		Short: "Run one command in a sandbox of its own",
		Long: `Makes a sandbox, runs one command in it and ends the sandbox. Output is passed
on as it comes, and so are the exit code and, unless it is a terminal, stdin.
Ctrl-C ends the sandbox. Output comes out byte for byte.

It uses the server that --url names or that holds the data directory. Without
one it starts what it needs in its own process, and leaves nothing. On a server
the stopped sandbox stays in the list, with its output, unless --rm is given.

There is no shell between: for pipes and variables, run sh -c '…'.`,
		Example: `glovebox run -- python3 -c 'print(6*7)'
echo 'console.log(6*7)' | glovebox run -- node -
glovebox run --file job.py --memory 4g --timeout 30s --network deny-all -- python3 job.py
glovebox run -it --image debian:trixie -- bash`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.given = cmd.Flags().Changed("timeout")
			return a.run(cmd.Context(), f, args)
		},
	}
	f.sandboxFlags.register(cmd.Flags(), "1h")
	f.commandFlags.register(cmd.Flags())
	cmd.Flags().StringArrayVar(&f.files, "file", nil, "SRC[:DST] to put in, a file or directory; repeatable")
	cmd.Flags().BoolVar(&f.remove, "rm", false, "remove the sandbox from the server's list, too")
	return cmd
}

func (a *app) run(ctx context.Context, f runFlags, argv []string) (err error) {
	req, err := f.request(a)
	if err != nil {
		return err
	}
	timeout := time.Duration(req.Timeout.Or(0)) * time.Millisecond
	req.Timeout = api.IntOf((timeout + sessionGrace).Milliseconds())
	persistent := false
	req.Persistent = &persistent

	// A reader that goes away (… | head) must not keep us from ending the
	// sandbox, as the signal would.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	c, release, err := a.serverForRun(ctx, f.image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()

	sandbox, err := c.CreateSandbox(ctx, req)
	if isTimeoutInvalid(err) && !f.given {
		req.Timeout = api.Int{} // ours is longer than this server allows; take its own
		sandbox, err = c.CreateSandbox(ctx, req)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.endRun(ctx, sandbox, f.remove)) }()

	if f.network == networkLearn {
		defer func() { err = errors.Join(err, a.tellLearned(ctx, sandbox)) }()
	}

	if err := putFiles(ctx, sandbox, f.files); err != nil {
		return err
	}
	run := client.Cmd{Name: argv[0], Args: argv[1:], Dir: f.cwd, Sudo: f.sudo, Timeout: timeout, Stdout: a.out, Stderr: a.errOut}
	if f.tty {
		return a.terminal(ctx, sandbox, run)
	}
	if a.passesStdin(f.interactive) {
		run.Stdin = a.in
	}
	command, err := sandbox.RunCommand(ctx, run)
	a.explainEnd(ctx, sandbox, command, timeout)
	if err != nil {
		return err
	}
	return codeOf(command)
}

// endRun ends the sandbox whatever became of its command, Ctrl-C included.
func (a *app) endRun(ctx context.Context, sandbox *client.Sandbox, remove bool) error {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	if remove {
		return sandbox.Delete(ctx)
	}
	_, err := sandbox.Stop(ctx)
	return err
}

// explainEnd says why a command was killed that did not end by itself: an
// exit code of 137 alone tells nobody what to change.
func (a *app) explainEnd(ctx context.Context, sandbox *client.Sandbox, command *client.Command, timeout time.Duration) {
	if command == nil || ctx.Err() != nil {
		return
	}
	code := command.ExitCode()
	if code >= 0 && code <= 128 {
		return
	}
	if code == 128+int(syscall.SIGKILL) && command.Duration() >= timeout {
		a.note("glovebox: the command was ended by its time-out of %s (--timeout)", timeout)
		return
	}
	if err := sandbox.Refresh(ctx); err != nil {
		return // the error that is being reported anyway is the first one
	}
	if reason := sandbox.Session().Reason; reason != "" {
		a.note("glovebox: the sandbox ended: %s", reason)
		return
	}
	if code == 128+int(syscall.SIGKILL) {
		a.note("glovebox: the command was killed; if nothing in it did that, it ran out of memory (--memory)")
	}
}

// serverForRun finds a server or, where there is none, starts what run needs
// in this process. release ends that.
func (a *app) serverForRun(ctx context.Context, image string) (*client.Client, func() error, error) {
	c, err := a.find(ctx)
	if err == nil {
		return c, func() error { return nil }, nil
	}
	if !errors.Is(err, errNoServer) {
		return nil, nil, err
	}
	if os.Geteuid() != 0 {
		return nil, nil, fail("sandboxes need root, and there is no server to ask",
			fmt.Sprintf("run it with sudo, or set %s and %s", envURL, envToken))
	}
	return a.startLocal(ctx, image)
}
