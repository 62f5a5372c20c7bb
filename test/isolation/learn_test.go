//go:build linux && amd64 && !race

package isolation

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
	"github.com/glovebox-dev/glovebox/test/outside"
	"github.com/glovebox-dev/glovebox/test/testserver"
)

// work is what a program does in the network: it looks names up, fetches, and
// connects to an address. Its search of a name that nobody has is no part of
// what it needs.
const work = `
import socket, ssl, urllib.request
c = ssl._create_unverified_context()
for u in ('http://allowed.test/', 'https://cdn.test/'): urllib.request.urlopen(u, context=c).read()
s = socket.create_connection(('93.184.0.3', 9999)); s.sendall(b'12345'); s.recv(5); s.close()
socket.gethostbyname('only-looked-up.test')
try: socket.gethostbyname('missing.test')
except OSError: pass
print('WORKED')
`

// TestSuggestedPolicySuffices: under the policy that is suggested the same
// work is done, and without any part of it that it is not.
func TestSuggestedPolicySuffices(t *testing.T) {
	outside.Run(t, func(t *testing.T, o *outside.Net) {
		server := newOutside(t, o)
		o.Name("cdn.test", "CNAME edge.cdn.example.")
		o.Name("edge.cdn.example", "93.184.0.4")
		o.Name("only-looked-up.test", "93.184.0.5")
		do := func(policy any) (worked bool, sum api.NetworkSummary, sandbox *testserver.Sandbox) {
			sandbox = server.Create(t, map[string]any{"networkPolicy": policy})
			r := sandbox.Run(t, map[string]any{"timeout": 60_000}, "python3", "-c", work)
			server.Call(t, http.MethodGet, "/v2/sandboxes/sessions/"+sandbox.Session+"/network-summary", nil, &sum)
			return strings.Contains(r.Stdout, "WORKED"), sum, sandbox
		}
		worked, sum, sandbox := do("allow-all")
		if !worked {
			t.Fatal("the work is not done under allow-all")
		}
		assertMetered(t, server, sandbox, sum)

		policy, notes := client.SuggestPolicy(&sum)
		var got []string
		for _, d := range *policy.Allow {
			got = append(got, d.Domain)
		}
		slices.Sort(got)
		if want := []string{"allowed.test", "cdn.test", "only-looked-up.test"}; !slices.Equal(got, want) || !slices.Equal(policy.Subnets.Allow, []string{"93.184.0.3"}) || len(notes) != 0 {
			t.Errorf("suggested %q and %q, noted %q", got, policy.Subnets.Allow, notes)
		}
		if worked, _, _ := do(policy); !worked {
			t.Error("the suggested policy does not suffice")
		}
		for i := range got {
			less := policy
			allow := slices.Delete(slices.Clone(*policy.Allow), i, i+1)
			less.Allow = &allow
			if worked, _, _ := do(less); worked {
				t.Errorf("%s is not needed", (*policy.Allow)[i].Domain)
			}
		}
	})
}

// assertMetered: what the session's end, its sums by name and its sandbox tell
// of its bytes is the same.
func assertMetered(t *testing.T, server *testserver.Server, sandbox *testserver.Sandbox, before api.NetworkSummary) {
	t.Helper()
	session := "/v2/sandboxes/sessions/" + sandbox.Session
	server.Call(t, http.MethodPost, session+"/stop", nil, nil)
	var ended api.SessionAndRoutes
	server.Call(t, http.MethodGet, session, nil, &ended)
	var box api.SandboxAndSession
	server.Call(t, http.MethodGet, "/v2/sandboxes/"+sandbox.Name, nil, &box)
	total := api.NetworkTransfer{Ingress: box.Sandbox.TotalIngressBytes, Egress: box.Sandbox.TotalEgressBytes}
	var after api.NetworkSummary
	server.Call(t, http.MethodGet, session+"/network-summary", nil, &after)
	var all api.NetworkTransfer
	for _, s := range after.Sums {
		all.Ingress += s.Transfer.Ingress
		all.Egress += s.Transfer.Egress
		if s.Address == "93.184.0.3" && s.Transfer != (api.NetworkTransfer{Ingress: 5, Egress: 5}) {
			t.Errorf("the echo of 5 bytes: %+v", s)
		}
	}
	if got := ended.Session.NetworkTransfer; got == nil || *got != all || total != all || after.Transfer != all {
		t.Errorf("after the end: session %+v, sandbox %+v, summary %+v, its sums %+v", got, total, after.Transfer, all)
	}
	if before.Transfer.Ingress == 0 || before.Transfer.Ingress > all.Ingress || before.Transfer.Egress > all.Egress {
		t.Errorf("%+v before the end, %+v after", before.Transfer, all)
	}
}
