package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/glovebox-dev/glovebox/client"
)

func (a *app) shCommand() *cobra.Command {
	var sudo bool
	var cwd string
	cmd := &cobra.Command{
		Use:   "sh SANDBOX [CMD [ARG…]]",
		Short: "Open a shell, or another command, on a terminal in a sandbox",
		Long: `Opens a terminal in a sandbox and runs bash in it, or sh where there is no
bash. When the connection ends, the shell is hung up.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sandbox, err := a.sandbox(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			argv := withoutDashes(args[1:])
			if len(argv) == 0 {
				argv = []string{"sh", "-c", "command -v bash >/dev/null && exec bash -i || exec sh -i"}
			}
			return a.terminal(cmd.Context(), sandbox, client.Cmd{Name: argv[0], Args: argv[1:], Dir: cwd, Sudo: sudo})
		},
	}
	cmd.Flags().BoolVar(&sudo, "sudo", false, "as root of the sandbox")
	cmd.Flags().StringVarP(&cwd, "cwd", "w", "", "working directory")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// terminal connects our terminal to a command on one in the sandbox.
func (a *app) terminal(ctx context.Context, sandbox *client.Sandbox, run client.Cmd) error {
	in, ok := a.in.(*os.File)
	if !ok || !isTerminal(in) {
		return fail("stdin is not a terminal", "leave out -t, or run it from one")
	}
	fd := int(in.Fd())
	options := client.ShellOptions{
		Command: run.Name, Args: run.Args, Dir: run.Dir, Sudo: run.Sudo,
		Env: map[string]string{"TERM": a.env("TERM", "xterm-256color")},
	}
	for k, v := range run.Env {
		options.Env[k] = v
	}
	if cols, rows, err := term.GetSize(fd); err == nil {
		options.Cols, options.Rows = cols, rows
	}
	shell, err := sandbox.Shell(ctx, options)
	if err != nil {
		return err
	}
	defer shell.Close()
	old, err := term.MakeRaw(fd)
	if err != nil {
		return err
	}
	defer term.Restore(fd, old) //nolint:errcheck // nothing can be done about it

	stopResize := followSize(fd, shell)
	defer stopResize()
	// What is typed ends with the process, or with the terminal.
	go io.Copy(shell, in) //nolint:errcheck
	if _, err := io.Copy(a.out, shell); err != nil {
		return err
	}
	if code := shell.ExitCode(); code != 0 {
		return exitCode(code)
	}
	return nil
}

// followSize passes changes of our terminal's size on until stop is called.
func followSize(fd int, shell *client.Shell) (stop func()) {
	changed := make(chan os.Signal, 1)
	done := make(chan struct{})
	signal.Notify(changed, syscall.SIGWINCH)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-changed:
				if cols, rows, err := term.GetSize(fd); err == nil {
					// A size that does not arrive is no reason to end.
					_ = shell.Resize(cols, rows)
				}
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		close(done)
	}
}
