package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
	"github.com/glovebox-dev/glovebox/internal/egress"
)

func TestPolicyTest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.json")
	policy := `{"allow":["example.com","*.example.org"],"subnets":{"allow":["203.0.114.0/24","10.1.0.0/16"],"deny":["203.0.114.9/32"]}}`
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		policy, url string
		allowed     bool
		rule        string
	}{
		{file, "https://EXAMPLE.com./path", true, "allow example.com"},
		{file, "example.com:8443", true, "allow example.com"},
		{file, "https://evil.com/?q=example.com", false, "no rule"},
		{file, "https://example.com@evil.com/", false, "no rule"},
		{file, "udp://example.com:443", false, "udp"},
		{file, "http://203.0.114.1/", true, "subnets.allow 203.0.114.0/24"},
		{file, "http://203.0.114.9/", false, "subnets.deny 203.0.114.9/32"},
		{file, "10.1.2.3:5432", true, "subnets.allow 10.1.0.0/16"},
		{file, "10.2.2.3:5432", false, "private range"},
		{file, "http://8.8.8.8/", false, "no rule"},
		{"example.com", "http://169.254.169.254/latest", false, "metadata service"},
		{"allow-all", "http://0x7f.1/", false, "loopback"},
		{"allow-all", "http://0177.0.0.01/", false, "loopback"},
		{"allow-all", "http://2130706433/", false, "loopback"},
		{"allow-all", "http://[::1]/", false, "loopback"},
		{"allow-all", "http://[::ffff:127.0.0.1]/", false, "IPv4 inside IPv6"},
		{"allow-all", "2606:4700::1111", false, "IPv6"},
		{"allow-all", "https://anything.net", true, "allow-all"},
		{"allow-all", "udp://9.9.9.9:53", true, "allow-all"},
		{"deny-all", "https://example.com", false, "deny-all"},
		{"*", "https://example.com", true, "allow *"},
	} {
		var out, errOut bytes.Buffer
		a := &app{in: strings.NewReader(policy), out: &out, errOut: &errOut, getenv: func(string) string { return "" }}
		root := a.rootCommand()
		root.SetArgs([]string{"policy", "test", "--json", tc.policy, tc.url})
		code := a.report(t.Context(), root.Execute())
		var got []tested
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got) != 1 {
			t.Errorf("%s: %s%s", tc.url, out.String(), errOut.String())
			continue
		}
		if got[0].Allowed != tc.allowed || got[0].Rule != tc.rule || (code == 0) != tc.allowed || !tc.allowed && got[0].Reason == "" {
			t.Errorf("%s %s: %+v, exit code %d", tc.policy, tc.url, got[0], code)
		}
	}
}

func TestPolicyTestComplains(t *testing.T) {
	for _, tc := range []struct {
		args  []string
		stdin string
		want  string
	}{
		{[]string{"allow-all", "http://"}, "", "names no host"},
		{[]string{"allow-all", "host:99999"}, "", "port"},
		{[]string{"missing.json", "a.com"}, "", "no policy file missing.json"},
		{[]string{"-", "a.com"}, `{"allow":["http://x"]}`, "networkPolicy.allow[0]"},
		{[]string{"-", "a.com"}, `{"allow":`, "-: "},
		{[]string{"bad name", "a.com"}, "", "networkPolicy.allow[0]"},
	} {
		var out, errOut bytes.Buffer
		a := &app{in: strings.NewReader(tc.stdin), out: &out, errOut: &errOut, getenv: func(string) string { return "" }}
		root := a.rootCommand()
		root.SetArgs(append([]string{"policy", "test"}, tc.args...))
		if code := a.report(t.Context(), root.Execute()); code != 1 || !strings.Contains(errOut.String(), tc.want) {
			t.Errorf("%v: exit code %d, %s", tc.args, code, errOut.String())
		}
	}
}

func FuzzLiteralAddress(f *testing.F) {
	for _, s := range []string{"1.2.3.4", "0x7f.1", "017700000001", "[::1]", "a.b", "1..2", "256.1.1.1", "0x100000000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if a, ok := literalAddress(host); ok && !a.IsValid() {
			t.Errorf("%q is %v", host, a)
		}
	})
}

// TestSuggestedPolicySuffices: what is suggested allows what was done, and a
// policy that lacks any part of it does not.
func TestSuggestedPolicySuffices(t *testing.T) {
	sum := &api.NetworkSummary{Sums: []api.NetworkSum{
		{Name: "a.com", Lookups: 2, Answered: true, Connections: 1},
		{Name: "looked-up.com", Lookups: 1, Answered: true},
		{Name: "missing.com", Lookups: 1},
		{Name: "refused.com", Refused: 3},
		{Address: "203.0.114.7", Connections: 1},
		{Name: "quic.com", Lookups: 1, Answered: true, Datagrams: 1},
		{Name: "odd\\046name.com", Connections: 1},
	}, Other: &api.NetworkSum{Lookups: 1}}
	policy, notes := client.SuggestPolicy(sum)
	text, err := json.Marshal(policy)
	if err != nil || string(text) != `{"allow":["a.com","looked-up.com","quic.com"],"subnets":{"allow":["203.0.114.7"]}}` {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := egress.Parse(policy); err != nil {
		t.Error(err)
	}
	if len(notes) != 3 || !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "UDP to quic.com") }) {
		t.Errorf("notes %q", notes)
	}
	if p, _ := client.SuggestPolicy(&api.NetworkSummary{}); p.Mode != api.PolicyDenyAll {
		t.Errorf("of nothing: %+v", p)
	}
}

func TestNetRows(t *testing.T) {
	rows := netRows([]api.NetworkRecord{
		{Seq: 5, Event: api.NetworkEnd, Of: 1, Protocol: "tcp", Name: "old.com", Port: 80, Rule: "allow-all", Transfer: &api.NetworkTransfer{Ingress: 1}},
		{Seq: 6, Event: api.NetworkDecision, Verdict: api.VerdictAllow, Protocol: "tcp", Name: "x.com", Address: "9.9.9.9", Port: 443, Rule: "allow x.com"},
		{Seq: 7, Event: api.NetworkDecision, Verdict: api.VerdictDeny, Protocol: "dns", Query: "TXT", Name: "y.com", Rule: "no rule", Reason: "why"},
		{Seq: 8, Event: api.NetworkEnd, Of: 6, Protocol: "tcp", Name: "x.com", Rule: "allow x.com", Reason: "connection refused", Transfer: &api.NetworkTransfer{Ingress: 2048, Egress: 3}},
	})
	var got []string
	for _, r := range rows {
		got = append(got, strings.Join(r[1:], "|"))
	}
	want := []string{
		"ended|tcp|old.com:80|-|1 B|0 B|allow-all",
		"allow|tcp|x.com:443|9.9.9.9|2.0 KiB|3 B|allow x.com: connection refused",
		"deny|dns TXT|y.com|-|-|-|no rule: why",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
