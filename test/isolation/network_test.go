//go:build linux && amd64 && !race

package isolation

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/test/outside"
	"github.com/glovebox-dev/glovebox/test/testserver"
)

// names is a policy of names; see attacks.
var names = map[string]any{"allow": []string{"allowed.test", "rebind.test", "inward.test", "inward6.test"}}

// newOutside starts a server with an outside that answers for every address.
func newOutside(t *testing.T, o *outside.Net) *testserver.Server {
	t.Helper()
	t.Setenv("GLOVEBOX_DNS", outside.DNS)
	o.Name("allowed.test", allowedAddr)
	for _, n := range []string{"blocked.test", "xallowed.test", "s3cret.blocked.test", "denied.test"} {
		o.Name(n, blockedAddr)
	}
	o.Name("todenied.test", "CNAME denied.test.")
	o.Name("rebind.test", "10.0.0.1", "127.0.0.1", "169.254.169.254", "172.31.255.1", allowedAddr, "172.31.255.2", "10.88.0.1")
	o.Name("inward.test", "CNAME corp.internal.")
	o.Name("corp.internal", "10.0.0.7")
	o.Name("inward6.test", "::1")
	return testserver.Start(t, "--network-deny", "denied.test,*.denied.test,93.184.7.0/24")
}

// refusals are those of a session's log, as "PROTOCOL NAME ADDRESS[:PORT] RULE".
func refusals(t *testing.T, server *testserver.Server, session string) []string {
	t.Helper()
	var log api.NetworkLog
	server.Call(t, http.MethodGet, "/v2/sandboxes/sessions/"+session+"/network-log", nil, &log)
	var out []string
	for _, r := range log.Records {
		if r.Verdict != api.VerdictDeny {
			continue
		}
		if r.Reason == "" || r.Rule == "" {
			t.Errorf("a refusal without a reason: %+v", r)
		}
		at := r.Address
		if r.Port != 0 {
			at = fmt.Sprintf("%s:%d", r.Address, r.Port)
		}
		out = append(out, strings.Join(strings.Fields(strings.Join([]string{r.Protocol, r.Name, at, r.Rule}, " ")), " "))
	}
	return out
}

// try runs an attack in a sandbox of its own, and fails if something answers,
// if a packet other than of mayLeave has left, or if the log lacks it.
func try(t *testing.T, server *testserver.Server, o *outside.Net, policy any, a attack, mayLeave []string) {
	t.Helper()
	sandbox := server.Create(t, map[string]any{"networkPolicy": policy})
	o.Packets()
	o.Queries()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	result := sandbox.Run(t, map[string]any{"timeout": 120_000, "sudo": a.sudo}, "python3", "-c", prelude+a.script, u.Port())
	if strings.Contains(result.Stdout, "LEAK") || strings.Contains(result.Stdout, "HUNG") || result.ExitCode != 0 {
		t.Errorf("exit code %d:\n%s%s", result.ExitCode, result.Stdout, result.Stderr)
	}
	for _, p := range o.Packets() {
		if !slices.Contains(mayLeave, p) {
			t.Errorf("left the host: %s", p)
		}
	}
	for _, q := range o.Queries() {
		if _, name, _ := strings.Cut(q, " "); !slices.Contains(mayLeave, name) {
			t.Errorf("was asked of the resolver outside: %s", q)
		}
	}
	log := refusals(t, server, sandbox.Session)
	for _, want := range a.log {
		re := regexp.MustCompile("^" + want)
		if strings.HasPrefix(want, "(") {
			re = regexp.MustCompile(want)
		}
		if !slices.ContainsFunc(log, re.MatchString) {
			t.Errorf("not in the log: %s\n%s", want, strings.Join(log, "\n"))
		}
	}
}

// TestNothingLeavesUnallowed tries each attack under a policy of names, where
// what is allowed still works, and under deny-all, where not one packet leaves.
func TestNothingLeavesUnallowed(t *testing.T) {
	outside.Run(t, func(t *testing.T, o *outside.Net) {
		server := newOutside(t, o)
		sandbox := server.Create(t, map[string]any{"networkPolicy": names})
		works := `import ssl, urllib.request
c = ssl._create_unverified_context()
for u in ('http://allowed.test/', 'https://allowed.test/'): print(urllib.request.urlopen(u, context=c).read().decode())`
		if r := sandbox.Run(t, nil, "python3", "-c", works); strings.Count(r.Stdout, "OUTSIDE "+allowedAddr) != 2 {
			t.Fatalf("what is allowed does not work: %+v", r)
		}
		leaves := []string{"udp " + outside.DNS + ":53", "tcp " + allowedAddr + ":80", "tcp " + allowedAddr + ":443", "tcp " + allowedAddr + ":8099",
			"allowed.test.", "rebind.test.", "inward.test.", "inward6.test."}
		for _, a := range slices.Concat(attacks, closed) {
			t.Run("names/"+a.name, func(t *testing.T) { try(t, server, o, names, a, leaves) })
			t.Run("deny-all/"+a.name, func(t *testing.T) { try(t, server, o, "deny-all", a, nil) })
		}
	})
}

// TestClosedUnderAllowAll tries what no policy opens.
func TestClosedUnderAllowAll(t *testing.T) {
	outside.Run(t, func(t *testing.T, o *outside.Net) {
		server := newOutside(t, o)
		leaves := []string{"udp " + outside.DNS + ":53", "tcp " + allowedAddr + ":443", "todenied.test."}
		everything := map[string]any{"allow": []string{"*"}, "subnets": map[string]any{"allow": []string{"0.0.0.0/0"}}}
		for _, a := range closed {
			t.Run("allow-all/"+a.name, func(t *testing.T) { try(t, server, o, "allow-all", a, leaves) })
			t.Run("everything/"+a.name, func(t *testing.T) { try(t, server, o, everything, a, leaves) })
		}
	})
}

// TestNewPolicyCutsWhatItForbids: an open connection and a UDP session end at
// once, and the log says by what.
func TestNewPolicyCutsWhatItForbids(t *testing.T) {
	outside.Run(t, func(t *testing.T, o *outside.Net) {
		server := newOutside(t, o)
		sandbox := server.Create(t, nil)
		session := "/v2/sandboxes/sessions/" + sandbox.Session
		script := prelude + `
t = socket.create_connection(('allowed.test', 9999)); t.sendall(b'a'); t.recv(1)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(('93.184.0.1', 443)); u.send(b'a'); u.recv(1)
open('/tmp/open', 'w').close()
t.settimeout(60)
try: print('ended', t.recv(1))
except ConnectionResetError: print('reset')
u.settimeout(2)
try: u.send(b'b'); leak(u.recv(1))
except OSError: pass
open('/tmp/over', 'w').close()
`
		done := make(chan testserver.Result, 1)
		go func() { done <- sandbox.Run(t, map[string]any{"timeout": 90_000}, "python3", "-c", script) }()
		sandbox.Run(t, map[string]any{"timeout": 60_000}, "sh", "-c", "until [ -e /tmp/open ]; do sleep 0.05; done")
		server.Call(t, http.MethodPost, session+"/network-policy", map[string]any{"mode": "deny-all"}, nil)
		select {
		case r := <-done:
			if strings.TrimSpace(r.Stdout) != "reset" {
				t.Errorf("the connection under a policy that forbids it: %+v", r)
			}
		case <-time.After(100 * time.Second):
			t.Fatal("the connection goes on under a policy that forbids it")
		}
		var log api.NetworkLog
		server.Call(t, http.MethodGet, session+"/network-log", nil, &log)
		cut := map[string]bool{}
		for _, r := range log.Records {
			if r.Event == api.NetworkEnd && r.Reason == "cut by a new network policy" {
				cut[r.Protocol] = r.Transfer.Ingress > 0 && r.Transfer.Egress > 0
			}
		}
		if !cut["tcp"] || !cut["udp"] {
			t.Errorf("what was cut, by the log: %v\n%+v", cut, log.Records)
		}
	})
}
