// Package cli is the command line of Glovebox: one file per verb. It talks to
// a server through the client package; run can do without one and opens what
// it needs in its own process.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Defaults of the global flags, and the variables that replace them.
const (
	defaultDataDir = "/var/lib/glovebox"
	defaultListen  = "127.0.0.1:7777"

	envDataDir = "GLOVEBOX_DATA_DIR"
	envURL     = "GLOVEBOX_URL"
	envToken   = "GLOVEBOX_TOKEN"
	envProject = "GLOVEBOX_PROJECT"
	envListen  = "GLOVEBOX_LISTEN"
	envPreview = "GLOVEBOX_PREVIEW_DOMAIN"

	envPublicURL = "GLOVEBOX_PUBLIC_URL"
	envDNS       = "GLOVEBOX_DNS"
	envDeny      = "GLOVEBOX_NETWORK_DENY"
)

// app is one invocation: its streams, environment and global flags.
type app struct {
	in     io.Reader
	out    io.Writer
	errOut io.Writer
	getenv func(string) string

	dataDir string
	url     string
	token   string
	project string
	json    bool
}

// Main runs the command line and returns the exit code of the process: 0, 1
// for an error, 2 for wrong usage, or that of the command that was run.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal ends things in good order; a second one must not have
	// to wait for that, so it gets back its usual meaning.
	context.AfterFunc(ctx, stop)

	a := &app{in: os.Stdin, out: os.Stdout, errOut: os.Stderr, getenv: os.Getenv}
	root := a.rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	return a.report(ctx, err)
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "glovebox",
		Short: "Run untrusted code in sandboxes",
		Long: `Glovebox runs untrusted code in sandboxes on your own machine: each has a
kernel of its own (gVisor), its own disk and its own network.

  glovebox run -- python3 -c 'print(6*7)'     one command, in a sandbox of its own
  glovebox serve                              a server with an HTTP API
  glovebox doctor                             what this machine lacks, and the remedy`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, err) })
	f := root.PersistentFlags()
	f.StringVar(&a.dataDir, "data-dir", a.env(envDataDir, defaultDataDir), "directory of images, state and logs ($"+envDataDir+")")
	f.StringVar(&a.url, "url", a.getenv(envURL), "address of a server ($"+envURL+"); without it, the one that holds the data directory")
	f.StringVar(&a.project, "project", a.getenv(envProject), "project, for a token that may use any ($"+envProject+")")
	f.BoolVar(&a.json, "json", false, "print JSON")
	// What the environment holds is nobody's default in the manual.
	f.Lookup("data-dir").DefValue = defaultDataDir
	f.Lookup("url").DefValue = ""
	f.Lookup("project").DefValue = ""
	a.token = a.getenv(envToken)

	root.AddGroup(
		&cobra.Group{ID: groupSandbox, Title: "Sandboxes:"},
		&cobra.Group{ID: groupServer, Title: "Server and machine:"},
	)
	for _, c := range a.sandboxCommands() {
		c.GroupID = groupSandbox
		root.AddCommand(c)
	}
	for _, c := range a.serverCommands() {
		c.GroupID = groupServer
		root.AddCommand(c)
	}
	root.AddCommand(a.docsCommand())
	wrapArgs(root)
	return root
}

const (
	groupSandbox = "sandbox"
	groupServer  = "server"
)

func (a *app) sandboxCommands() []*cobra.Command {
	return []*cobra.Command{
		a.runCommand(), a.createCommand(), a.execCommand(), a.shCommand(), a.logsCommand(),
		a.cpCommand(), a.lsCommand(), a.stopCommand(), a.rmCommand(),
		a.snapshotCommand(), a.forkCommand(), a.netCommand(), a.policyCommand(),
	}
}

func (a *app) serverCommands() []*cobra.Command {
	return []*cobra.Command{
		a.serveCommand(), a.statusCommand(), a.pruneCommand(), a.doctorCommand(), a.imageCommand(),
		a.tokenCommand(), a.envCommand(), a.versionCommand(),
	}
}

// wrapArgs turns the complaints of the argument checks into usage errors.
func wrapArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usage(cmd, err)
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		wrapArgs(sub)
	}
}

// group makes a command that only has subcommands.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("a subcommand is missing"))
		},
	}
	cmd.AddCommand(subs...)
	return cmd
}

func (a *app) env(name, otherwise string) string {
	if v := a.getenv(name); v != "" {
		return v
	}
	return otherwise
}

// isTerminal tells whether f, one of the app's streams, is a terminal.
func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// note prints a line for the person at the terminal, on stderr.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.errOut, format+"\n", args...)
}

// splitEnv checks K=V pairs; a bare K takes the value from our environment,
// as it does in docker run.
func (a *app) splitEnv(pairs []string) (map[string]string, error) {
	env := make(map[string]string, len(pairs))
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if k == "" {
			return nil, fail(fmt.Sprintf("--env %q has no name", p), "write --env NAME=VALUE")
		}
		if !ok {
			v = a.getenv(k)
		}
		env[k] = v
	}
	return env, nil
}
