// Package sentryseccomp holds the compiled seccomp filter of the sandbox
// kernel.
//
// The Go module of gVisor comes without the filters that its own build
// compiles ahead, so every boot would compile its filter: 20–25 ms of each
// start. The programs here are what the pinned gVisor would compile for the
// one configuration that Glovebox uses; a test compares them. Where none
// matches, gVisor compiles its own as before.
package sentryseccomp

import (
	_ "unsafe" // for linkname

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/boot/filter/config"

	_ "gvisor.dev/gvisor/pkg/sentry/platform/systrap" // registers the platform
)

//go:generate go run ./gen
//go:generate env GOARCH=arm64 go run ./gen

// Platform is the gVisor platform that the programs are for.
const Platform = "systrap"

//go:linkname installed gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var installed map[string]precompiledseccomp.Program

//go:linkname rules gvisor.dev/gvisor/runsc/boot/filter/config.rules
func rules(opt config.Options, vars precompiledseccomp.Values) (allow, deny seccomp.SyscallRules)

// Install makes the programs known to gVisor's filter package in this
// process.
func Install() {
	filter.ListPrecompiled() // makes the map, once
	for _, p := range programs {
		installed[p.Name] = p
	}
}

// ownPID mends a rule of the platform's that holds the PID of the process that
// compiles it, where the one that installs it is meant.
type ownPID struct{ platform.SeccompInfo }

func (p ownPID) SyscallFilters(vars precompiledseccomp.Values) seccomp.SyscallRules {
	r := p.SeccompInfo.SyscallFilters(vars)
	r.Remove(unix.SYS_RT_TGSIGQUEUEINFO)
	r.Set(unix.SYS_RT_TGSIGQUEUEINFO, seccomp.PerArg{
		seccomp.EqualTo(vars.GetUint64("self_pid")),
		seccomp.AnyValue{}, // thread
		seccomp.EqualTo(unix.SIGKILL),
	})
	return r
}

// options are gVisor's, with the default action spelled out: it would ask the
// kernel that compiles. Every kernel that Glovebox runs on has this one.
func options(opt config.Options) seccomp.ProgramOptions {
	o := config.SeccompOptions(opt)
	o.DefaultAction = seccomp.KillProcess
	return o
}

// Compile compiles the programs that Glovebox's sandbox kernels need on this
// architecture: no host network, no host files, no devices.
func Compile() ([]precompiledseccomp.Program, error) {
	constructor, err := platform.Lookup(Platform)
	if err != nil {
		return nil, err
	}
	var out []precompiledseccomp.Program
	for _, info := range constructor.PrecompiledSeccompInfo() {
		opt := config.Options{Platform: ownPID{info}}
		var names []string
		for name := range opt.Vars() {
			names = append(names, name)
		}
		p, err := precompiledseccomp.Precompile(opt.ConfigKey(), names, func(vars precompiledseccomp.Values) *seccomp.Program {
			allow, deny := rules(opt, vars)
			return &seccomp.Program{
				RuleSets: []seccomp.RuleSet{{Rules: deny.Copy()}, {Rules: allow.Copy(), Action: seccomp.Allow}},
				Options:  options(opt),
			}
		})
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}
