package cli

import (
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/egress"
)

func (a *app) policyCommand() *cobra.Command {
	return group("policy", "Network policies", a.policyTestCommand())
}

func (a *app) policyTestCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "test POLICY URL…",
		Short: "Tell what a network policy allows, without a sandbox",
		Long: `Judges each URL, or HOST[:PORT], by a policy: a file with JSON as the API takes
it ("-" for stdin), allow-all, deny-all, or domains with commas between. Nothing
is looked up or connected to. udp://HOST:PORT asks for UDP.

The exit code is 0 if all are allowed, else 1. A name that is allowed must still
lead to an address that is: the output says so.`,
		Example: `glovebox policy test 'example.com,*.npmjs.org' https://registry.npmjs.org/ http://169.254.169.254/
glovebox policy test policy.json https://api.example.com/v1`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			policy, err := a.policyArgument(args[0])
			if err != nil {
				return err
			}
			return a.testPolicy(policy, args[1:])
		},
	}
}

// policyArgument is what policy test and others take as POLICY.
func (a *app) policyArgument(s string) (egress.Policy, error) {
	var p *api.NetworkPolicy
	var err error
	name := s
	switch {
	case s == "-" || isFile(s):
		p, err = a.readPolicy(s)
	case strings.ContainsAny(s, "/{") || strings.HasSuffix(s, ".json"):
		return egress.Policy{}, fail(fmt.Sprintf("there is no policy file %s", s), "name a file, \"-\", allow-all, deny-all, or domains with commas between")
	default:
		p, name = simplePolicy(s), "policy"
	}
	if err != nil {
		return egress.Policy{}, err
	}
	policy, err := egress.Parse(*p)
	if err != nil {
		return egress.Policy{}, policyError(name, err)
	}
	return policy, nil
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.IsDir()
}

// tested is a URL with what a policy says of it.
type tested struct {
	URL      string `json:"url"`
	Protocol string `json:"protocol"`
	Name     string `json:"name,omitempty"`
	Address  string `json:"address,omitempty"`
	Port     int    `json:"port,omitempty"`
	Allowed  bool   `json:"allowed"`
	Rule     string `json:"rule"`
	Reason   string `json:"reason,omitempty"`
	Note     string `json:"note,omitempty"`

	host string // as it was written
}

func (a *app) testPolicy(policy egress.Policy, urls []string) error {
	all := true
	results := make([]tested, 0, len(urls))
	for _, u := range urls {
		t, err := parseTarget(u)
		if err != nil {
			return err
		}
		t.judge(policy)
		all = all && t.Allowed
		results = append(results, t)
	}
	if err := a.printTested(results); err != nil {
		return err
	}
	if !all {
		return exitCode(exitError)
	}
	return nil
}

func (a *app) printTested(results []tested) error {
	if a.json {
		return a.printJSON(results)
	}
	style := a.stylesFor(a.out)
	for _, t := range results {
		verdict, why := style.green("allow"), t.Rule
		if !t.Allowed {
			verdict, why = style.red("deny "), joinReasons(t.Rule, t.Reason)
		}
		if _, err := fmt.Fprintf(a.out, "%s  %s  %s\n", verdict, printable(t.URL), printable(why)); err != nil {
			return err
		}
		if t.Note != "" {
			fmt.Fprintf(a.out, "       %s\n", style.dim(t.Note))
		}
	}
	return nil
}

var schemePorts = map[string]int{"http": 80, "ws": 80, "https": 443, "wss": 443, "ssh": 22, "git": 9418, "ftp": 21}

// parseTarget reads a URL, or HOST[:PORT].
func parseTarget(s string) (tested, error) {
	bad := func(why string) (tested, error) {
		return tested{}, fail(fmt.Sprintf("%q is no URL: %s", s, why), "write it like https://example.com/path or example.com:443")
	}
	full := s
	if !strings.Contains(s, "://") {
		if a, err := netip.ParseAddr(s); err == nil && a.Is6() {
			full = "[" + s + "]"
		}
		full = "tcp://" + full
	}
	u, err := url.Parse(full)
	if err != nil {
		return bad(err.Error())
	}
	host := u.Hostname()
	if host == "" {
		return bad("it names no host")
	}
	t := tested{URL: s, Protocol: egress.TCP, Port: schemePorts[u.Scheme], host: host}
	if u.Scheme == "udp" {
		t.Protocol = egress.UDP
	}
	if p := u.Port(); p != "" {
		if t.Port, err = strconv.Atoi(p); err != nil || t.Port < 1 || t.Port > 65535 {
			return bad("its port is not within 1–65535")
		}
	}
	if addr, ok := literalAddress(host); ok {
		t.Address = addr.String()
	} else {
		t.Name = egress.NormalName(host)
	}
	return t, nil
}

func (t *tested) judge(policy egress.Policy) {
	v := t.verdict(policy)
	t.Allowed, t.Rule, t.Reason = v.Allowed, v.Rule, v.Reason
	open := policy.Mode() == egress.ModeAllowAll
	switch {
	case t.Address != "" && t.host != t.Address:
		t.Note = t.host + " is another way to write the address " + t.Address
	case t.Address != "" && !open && t.Protocol == egress.TCP:
		t.Note = "an address in place of a name: only subnets count"
	case t.Name != "" && v.Allowed && open:
		t.Note = "if it resolves to a public address"
	case t.Name != "" && v.Allowed:
		t.Note = "if it resolves to a public address that subnets.deny does not have, and TLS names the same server"
	}
}

func (t *tested) verdict(policy egress.Policy) egress.Verdict {
	if t.Address != "" {
		addr := netip.MustParseAddr(t.Address)
		v := policy.Connect(t.Protocol, netip.AddrPortFrom(addr, uint16(t.Port)), nil)
		if v.Allowed && addr.Is6() {
			return egress.Verdict{Rule: "IPv6", Reason: "sandboxes have no IPv6"}
		}
		return v
	}
	v := policy.Resolve(t.Name)
	if v.Allowed && t.Protocol == egress.UDP && policy.Mode() != egress.ModeAllowAll {
		return egress.Verdict{Rule: "udp", Reason: "UDP passes only under allow-all"}
	}
	return v
}
