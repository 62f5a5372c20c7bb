package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes of our own. The last two are what a shell reports of a command
// that Ctrl-C, or a broken pipe, ended.
const (
	exitError       = 1
	exitUsage       = 2
	exitInterrupted = 130
	exitPipe        = 141
)

// failure is an error as the user reads it: what happened and what to do.
type failure struct {
	cause  string
	remedy string
	code   int
	err    error
}

func (f *failure) Error() string { return f.cause }
func (f *failure) Unwrap() error { return f.err }

func fail(cause, remedy string) error {
	return &failure{cause: oneLine(cause), remedy: remedy, code: exitError}
}

func usage(cmd *cobra.Command, err error) error {
	return &failure{
		cause:  oneLine(err.Error()),
		remedy: fmt.Sprintf("see %s --help", cmd.CommandPath()),
		code:   exitUsage,
	}
}

// exitCode is the end of the user's own command: nothing to report, just a
// code to pass on.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// report prints err in one line of cause and one of remedy, and returns the
// exit code that it means.
func (a *app) report(ctx context.Context, err error) int {
	if err == nil {
		return 0
	}
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	if errors.Is(err, syscall.EPIPE) {
		return exitPipe // the reader of our output has gone, and knows
	}
	f := explain(err)
	style := a.stylesFor(a.errOut)
	fmt.Fprintf(a.errOut, "%s %s\n", style.red("glovebox:"), f.cause)
	if f.remedy != "" {
		fmt.Fprintf(a.errOut, "%s %s\n", style.dim("try:"), f.remedy)
	}
	return f.code
}

// explain finds the remedy of an error that came without one.
func explain(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	f = &failure{cause: oneLine(err.Error()), code: exitError, err: err}
	if strings.HasPrefix(err.Error(), "unknown command") {
		f.code, f.remedy = exitUsage, "see glovebox --help"
		return f
	}
	if f.remedy = remedyOf(err); f.remedy == "" {
		f.cause, f.remedy = splitRemedy(f.cause)
	}
	return f
}

// splitRemedy finds the advice that the errors of other packages end with.
func splitRemedy(text string) (cause, remedy string) {
	for _, mark := range []string{"; ", ": run "} {
		if i := strings.LastIndex(text, mark); i > 0 {
			return text[:i], strings.Trim(text[i+2:], " ")
		}
	}
	return text, ""
}

func remedyOf(err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "start the server there, or correct --url / $" + envURL
	case errors.As(err, &dns):
		return "correct the host name, or see what glovebox doctor says about DNS"
	case errors.Is(err, syscall.ENOSPC):
		return "free some disk space; glovebox image ls shows what the images take"
	case errors.Is(err, fs.ErrPermission):
		return "run it as root (sudo), or name a --data-dir that you may write to"
	case errors.Is(err, context.DeadlineExceeded):
		return "see glovebox status and glovebox doctor"
	}
	return remedyOfCode(err)
}

// oneLine keeps what a server or library says from breaking the two-line form.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
