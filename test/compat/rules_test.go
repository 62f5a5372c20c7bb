//go:build linux && !race

package compat

import (
	"os"
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
		result := run("outside/rules.test.mjs", append(os.Environ(), "GLOVEBOX_URL="+server.URL, "GLOVEBOX_TOKEN="+server.Token))
		t.Logf("%s", result.output)
		if result.err != nil {
			t.Error(result.err)
		}
	})
}
