//go:build linux && !race

package compat

import (
	"os"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/test/outside"
	"github.com/glovebox-dev/glovebox/test/testserver"
)

// TestRules runs the suites that need servers outside: rules for requests.
func TestRules(t *testing.T) {
	outside.Run(t, func(t *testing.T, o *outside.Net) {
		ensureModules(t)
		t.Setenv("GLOVEBOX_DNS", outside.DNS)
		o.Name("api.test", "93.184.1.1")
		o.Name("plain.test", "93.184.1.1", "93.184.1.2")
		o.Name("other.test", "93.184.1.2")
		o.Name("forbidden.test", "93.184.1.1")
		o.Name("proxy.test", "93.184.1.3")
		server := testserver.Start(t, "--egress-ca-file", o.CAFile(t))
		result := run("outside/rules.test.mjs", append(os.Environ(), "GLOVEBOX_URL="+server.URL, "GLOVEBOX_TOKEN="+server.Token), t.TempDir())
		t.Logf("%s", result.output)
		if result.err != nil {
			t.Error(result.err)
		}
		t.Run("the next server knows the CA that the sandbox trusts", func(t *testing.T) { assertTakenOver(t, server) })
	})
}

// assertTakenOver: what trusted the CA before the server died goes on to.
func assertTakenOver(t *testing.T, server *testserver.Server) {
	box := server.Create(t, map[string]any{"networkPolicy": map[string]any{"allow": map[string]any{
		"api.test": []any{map[string]any{"transform": []any{map[string]any{"headers": map[string]string{"x-key": "k3y"}}}}},
	}}})
	get := func() {
		t.Helper()
		// The copy is what a program that runs since before has in memory.
		r := box.Run(t, nil, "sh", "-c", "test -e /tmp/ca || cp $NODE_EXTRA_CA_CERTS /tmp/ca; curl -sS --cacert /tmp/ca https://api.test/echo")
		if !strings.Contains(r.Stdout, `"X-Key":["k3y"]`) {
			t.Errorf("%+v", r)
		}
	}
	get()
	server.KillAndRestart(t)
	get()
}
