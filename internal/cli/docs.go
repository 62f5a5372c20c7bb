package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// Manual writes docs/cli.md, the manual of the whole command line. It depends
// on nothing but the commands themselves, so that a test can tell whether the
// file is up to date.
func Manual(w io.Writer) error {
	a := &app{in: os.Stdin, out: io.Discard, errOut: io.Discard, getenv: func(string) string { return "" }}
	root := a.rootCommand()
	if _, err := fmt.Fprint(w, "# Command line\n\nMade by `make docs` from the commands themselves.\n"); err != nil {
		return err
	}
	if err := manualOf(w, root); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n## Flags of every command\n\n```\n%s```\n", root.PersistentFlags().FlagUsages())
	return err
}

func manualOf(w io.Writer, cmd *cobra.Command) error {
	for _, sub := range cmd.Commands() {
		if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
			continue
		}
		if sub.HasSubCommands() {
			if err := manualOf(w, sub); err != nil {
				return err
			}
			continue
		}
		text := sub.Long
		if text == "" {
			text = sub.Short + "."
		}
		var b strings.Builder
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s\n```\n\n%s\n", sub.CommandPath(), sub.UseLine(), strings.TrimSpace(text))
		if sub.Example != "" {
			fmt.Fprintf(&b, "\n```sh\n%s\n```\n", strings.TrimSpace(sub.Example))
		}
		if flags := sub.NonInheritedFlags(); flags.HasAvailableFlags() {
			fmt.Fprintf(&b, "\n```\n%s```\n", flags.FlagUsages())
		}
		if _, err := io.WriteString(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) docsCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "docs",
		Short:  "Print the manual of the command line",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(*cobra.Command, []string) error { return Manual(a.out) },
	}
}
