// Command bench measures what a user of Glovebox waits for, beside bwrap,
// runc and gVisor's own command doing the same job in the same run.
//
// Each file with an init function is one subject; a new one is added by
// adding its file. See docs/benchmarks.md for how to read the figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
)

// options of a run.
type options struct {
	bin    string         // the built program
	data   string         // data directory with the default image; only read
	runsc  string         // gVisor's own command; "" leaves it out
	tmp    string         // where everything temporary goes
	n      int            // rounds; each bench scales it to what a round costs
	only   *regexp.Regexp // names of the benches to run
	asJSON bool
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == outsideCommand {
		if err := serveOutside(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench: serve outside:", err)
			os.Exit(1)
		}
		return
	}
	opts, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, opts, os.Stdout)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.bin, "bin", "bin/glovebox", "the built program")
	f.StringVar(&o.data, "data-dir", ".glovebox", "data directory with the default image; it is only read")
	f.StringVar(&o.runsc, "runsc", "bin/runsc", "gVisor's own command")
	f.StringVar(&o.tmp, "tmp", "/var/tmp", "directory on a disk for everything temporary")
	f.IntVar(&o.n, "n", 20, "rounds; cheap jobs are repeated a multiple of it")
	f.BoolVar(&o.asJSON, "json", false, "print JSON, with every sample")
	only := f.String("run", "", "run only benches whose name matches this regular expression")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see -help", f.Arg(0))
	}
	if o.n < 1 {
		return o, fmt.Errorf("-n %d: want at least 1", o.n)
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("-run: %w", err)
	}
	return o, nil
}

// run measures everything that the options choose and prints it to out. What
// it started is gone when it returns, however that comes about.
func run(ctx context.Context, opts options, out io.Writer) (err error) {
	r, err := newRig(opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.findPeers(ctx); err != nil {
		return err
	}
	rep := report{Machine: describe(ctx, r), Rounds: opts.n}
	if !opts.asJSON {
		rep.writeHeader(out)
	}
	for _, b := range benches {
		if !opts.only.MatchString(b.name) {
			continue
		}
		res, err := b.run(ctx, r)
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		if err != nil {
			return fmt.Errorf("bench %s: %w%s", b.name, err, r.logs())
		}
		rep.Results = append(rep.Results, res)
		if !opts.asJSON {
			res.write(out)
		}
	}
	if len(rep.Results) == 0 {
		return fmt.Errorf("-run %s: no bench has such a name", opts.only)
	}
	rep.finish()
	if opts.asJSON {
		return rep.writeJSON(out)
	}
	rep.writeFooter(out)
	return nil
}
