package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

// level of a finding: good, works but worse, does not work.
type level string

const (
	levelOK      level = "ok"
	levelWarning level = "warning"
	levelFatal   level = "fatal"
)

// finding is the outcome of one check.
type finding struct {
	Check  string `json:"check"`
	Level  level  `json:"level"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// check looks at one side of the machine. All of them only look.
type check func(context.Context) []finding

func (a *app) doctorCommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this machine needs to run sandboxes",
		Long: `Checks the kernel, privileges, cgroups, ptrace scope, disk, DNS, the default
image, the server's port and the sandbox driver, and says the remedy for each
finding. Changes nothing. Exits with 1 if something keeps sandboxes from running.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.doctor(cmd.Context(), []check{
				checkKernel, checkPrivileges, checkCgroups, checkPtrace,
				a.checkDisk, a.checkDNS, a.checkImage, a.checkPort(listen), a.checkDriver,
			})
		},
	}
	cmd.Flags().StringVar(&listen, "listen", a.env(envListen, defaultListen), "address that serve will listen on ($"+envListen+")")
	cmd.Flags().Lookup("listen").DefValue = defaultListen
	return cmd
}

// doctor runs the checks, the last one only if the others found nothing fatal.
func (a *app) doctor(ctx context.Context, checks []check) error {
	findings := []finding{}
	fatal := 0
	for i, c := range checks {
		if i == len(checks)-1 && fatal > 0 {
			break // the driver would only say the same again
		}
		for _, f := range c(ctx) {
			if f.Level == levelFatal {
				fatal++
			}
			findings = append(findings, f)
			if !a.json {
				a.printFinding(f)
			}
		}
	}
	if a.json {
		if err := a.printJSON(findings); err != nil {
			return err
		}
	}
	switch {
	case fatal > 0 && a.json:
		return exitCode(exitError)
	case fatal > 0:
		return fail(fmt.Sprintf("%d of the findings keep sandboxes from running", fatal), "follow the remedies above")
	}
	return nil
}

func (a *app) printFinding(f finding) {
	style := a.stylesFor(a.out)
	mark := style.green("ok     ")
	switch f.Level {
	case levelWarning:
		mark = style.yellow("warning")
	case levelFatal:
		mark = style.red("fatal  ")
	}
	fmt.Fprintf(a.out, "%s  %-10s  %s\n", mark, f.Check, printable(f.Detail))
	if f.Remedy != "" {
		fmt.Fprintf(a.out, "                     %s %s\n", style.dim("try:"), printable(f.Remedy))
	}
}

func ok(check, detail string) []finding {
	return []finding{{Check: check, Level: levelOK, Detail: detail}}
}

func warning(check, detail, remedy string) []finding {
	return []finding{{Check: check, Level: levelWarning, Detail: detail, Remedy: remedy}}
}

func fatal(check, detail, remedy string) []finding {
	return []finding{{Check: check, Level: levelFatal, Detail: detail, Remedy: remedy}}
}
