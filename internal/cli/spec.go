package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/glovebox-dev/glovebox/api"
)

// sandboxFlags are what create and run have in common.
type sandboxFlags struct {
	name    string
	image   string
	env     []string
	network string
	timeout string
	memory  string
	cpus    int
	ports   []int
	tags    []string
}

func (f *sandboxFlags) register(flags *pflag.FlagSet, timeout string) {
	flags.StringVar(&f.name, "name", "", "name of the sandbox (default random)")
	flags.StringVar(&f.image, "image", "", "image to start from (default glovebox/universal)")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "NAME=VALUE, or NAME to pass on its value here; repeatable")
	flags.StringVar(&f.network, "network", "", "allow-all, deny-all, learn (allow-all, and what would have sufficed), allowed domains with commas between, or @FILE with a policy in JSON (default allow-all)")
	flags.StringVar(&f.timeout, "timeout", timeout, "how long the sandbox may live")
	flags.StringVar(&f.memory, "memory", "", "memory that it needs at least; it comes as 2g for each CPU")
	flags.IntVar(&f.cpus, "cpus", 0, "CPUs: 1 or an even number (default 2)")
	flags.IntSliceVarP(&f.ports, "port", "p", nil, "port that gets an address of its own; repeatable")
	flags.StringArrayVar(&f.tags, "tag", nil, "KEY=VALUE to find it by; repeatable")
}

// request makes the create call that the flags describe.
func (f *sandboxFlags) request(a *app) (api.CreateSandboxRequest, error) {
	var req api.CreateSandboxRequest
	env, err := a.splitEnv(f.env)
	if err != nil {
		return req, err
	}
	var timeout api.Int
	if f.timeout != "" {
		d, err := parseDuration("--timeout", f.timeout)
		if err != nil {
			return req, err
		}
		timeout = api.IntOf(d.Milliseconds())
	}
	resources, err := f.resources()
	if err != nil {
		return req, err
	}
	policy, err := a.parseNetwork(f.network)
	if err != nil {
		return req, err
	}
	req = api.CreateSandboxRequest{
		Name: f.name, Image: f.image, Env: env, Resources: resources,
		Timeout:       timeout,
		NetworkPolicy: policy,
	}
	for _, p := range f.ports {
		req.Ports = append(req.Ports, api.IntOf(int64(p)))
	}
	for _, t := range f.tags {
		k, v, ok := strings.Cut(t, "=")
		if !ok || k == "" {
			return req, fail(fmt.Sprintf("--tag %q is no KEY=VALUE", t), "write --tag KEY=VALUE")
		}
		if req.Tags == nil {
			req.Tags = map[string]string{}
		}
		req.Tags[k] = v
	}
	return req, nil
}

// perCPU is how much memory comes with each CPU, in bytes.
const perCPU = 2 << 30

// resources turns --cpus and --memory into CPUs, which memory follows.
func (f *sandboxFlags) resources() (*api.Resources, error) {
	cpus := f.cpus
	if f.memory != "" {
		bytes, err := parseSize("--memory", f.memory)
		if err != nil {
			return nil, err
		}
		need := int((bytes + perCPU - 1) / perCPU)
		if need > 1 && need%2 == 1 {
			need++
		}
		if cpus != 0 && cpus < need {
			return nil, fail(fmt.Sprintf("--cpus %d comes with %s, less than --memory %s", cpus, size(int64(cpus)*perCPU), f.memory),
				fmt.Sprintf("use --cpus %d, or leave it out", need))
		}
		cpus = max(cpus, need)
	}
	if cpus == 0 {
		return nil, nil
	}
	return &api.Resources{VCPUs: api.IntOf(int64(cpus))}, nil
}

// commandFlags are what run and exec have in common.
type commandFlags struct {
	interactive bool
	tty         bool
	sudo        bool
	cwd         string
}

func (f *commandFlags) register(flags *pflag.FlagSet) {
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "pass stdin on even if it is a terminal")
	flags.BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal")
	flags.BoolVar(&f.sudo, "sudo", false, "run the command as root of the sandbox")
	flags.StringVarP(&f.cwd, "cwd", "w", "", "working directory")
	// What comes after the command's name belongs to the command.
	flags.SetInterspersed(false)
}

// isTimeoutInvalid tells that the server does not allow so long a life.
func isTimeoutInvalid(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && e.Code == api.CodeTimeoutInvalid
}

// sessionGrace is how much longer than its command a sandbox of run lives, so
// that the command's own time-out is what ends it.
const sessionGrace = 10 * time.Second
