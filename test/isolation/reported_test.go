//go:build linux && amd64 && !race

package isolation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/test/outside"
)

// TestBlockedHostsFailAtOnce: whatever a program tries, it learns soon that it
// may not; nothing looks like an outage or waits for minutes.
func TestBlockedHostsFailAtOnce(t *testing.T) {
	outside.Run(t, func(t *testing.T, o *outside.Net) {
		server := newOutside(t, o)
		sandbox := server.Create(t, map[string]any{"networkPolicy": names})
		for _, command := range []string{
			"curl -sS http://blocked.test/", "curl -sSk https://blocked.test/", "curl -sSk https://" + blockedAddr + "/",
			"curl -sS http://blocked.test:9999/", "curl -sS http://" + blockedAddr + ":9999/",
			"python3 -c \"import socket; socket.create_connection(('" + blockedAddr + "', 25))\"",
			"pip download --no-deps --retries 0 x", "git ls-remote https://blocked.test/x.git", "git ls-remote ssh://git@" + blockedAddr + "/x.git",
			"getent hosts blocked.test", "getent ahostsv6 blocked.test",
		} {
			r := sandbox.Run(t, map[string]any{"timeout": 60_000}, "sh", "-c", "timeout 30 "+command)
			if r.ExitCode == 0 || r.ExitCode == 124 {
				t.Errorf("%s: exit code %d: %s%s", command, r.ExitCode, r.Stdout, r.Stderr)
			}
		}
	})
}

// TestRotatingAddresses: each look-up gives another address, and clients keep
// the ones they have: all of them work, and so does a new one.
func TestRotatingAddresses(t *testing.T) {
	outside.Run(t, func(t *testing.T, o *outside.Net) {
		server := newOutside(t, o)
		var addrs []string
		for i := range 6 {
			addrs = append(addrs, fmt.Sprintf("93.184.1.%d", i+1))
		}
		o.Name("rotate.test", addrs...)
		sandbox := server.Create(t, map[string]any{"networkPolicy": map[string]any{"allow": []string{"rotate.test"}}})
		const script = `
import http.client, socket, urllib.request
first = socket.gethostbyname('rotate.test'); ok = 0
keep = http.client.HTTPConnection('rotate.test')
for i in range(50):
    ok += urllib.request.urlopen('http://rotate.test/').status == 200
    keep.request('GET', '/'); r = keep.getresponse(); r.read(); ok += r.status == 200
    c = http.client.HTTPConnection(first); c.request('GET', '/', headers={'Host': 'rotate.test'}); ok += c.getresponse().status == 200; c.close()
print(ok)`
		for _, change := range []string{"", "93.184.9.9"} {
			if change != "" {
				o.Name("rotate.test", change)
			}
			r := sandbox.Run(t, map[string]any{"timeout": 120_000}, "python3", "-c", script)
			if strings.TrimSpace(r.Stdout) != "150" {
				t.Errorf("%s of 150 requests: %s", strings.TrimSpace(r.Stdout), r.Stderr)
			}
		}
		if refused := refusals(t, server, sandbox.Session); len(refused) > 0 {
			t.Errorf("refused: %q", refused)
		}
	})
}
