package cli

import (
	"github.com/spf13/pflag"

	"github.com/glovebox-dev/glovebox/api"
)

// limitFlags are the settings of a server that bound what sandboxes may ask for.
type limitFlags struct{ disk, timeout, env, output string }

func (f *limitFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.disk, "disk", "32g", "what a sandbox can write to its disk")
	flags.StringVar(&f.timeout, "max-timeout", "24h", "longest time-out of a session, extensions included")
	flags.StringVar(&f.env, "max-env", "64k", "names and values of one request's variables together")
	flags.StringVar(&f.output, "max-output", "256m", "output kept of one command")
}

func (f *limitFlags) parse() (l api.Limits, err error) {
	l = api.DefaultLimits()
	if l.DiskBytes, err = parseSize("--disk", f.disk); err != nil {
		return l, err
	}
	if l.MaxTimeout, err = parseDuration("--max-timeout", f.timeout); err != nil {
		return l, err
	}
	env, err := parseSize("--max-env", f.env)
	if err != nil {
		return l, err
	}
	l.EnvBytes = int(env)
	l.CommandLogSize, err = parseSize("--max-output", f.output)
	return l, err
}
