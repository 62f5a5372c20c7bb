package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// layers from the top down: a package imports only packages of lower layers,
// or of its own, and never one that is not listed. The order is the
// architecture; see docs/architecture.md.
var layers = [][]string{
	{"cmd/glovebox"},
	{"internal/cli"},
	{"internal/daemon"},
	{"client", "compat/vercel"},
	{"internal/server"},
	{"internal/preview", "internal/openapi"},
	{"internal/control"},
	{"internal/store"},
	{"internal/node"},
	{"internal/snapshot"},
	{"internal/driver/gvisor", "internal/netstack", "internal/guest", "internal/image"},
	{"internal/intercept"},
	{"internal/oidc", "internal/scratch", "internal/layer", "internal/egress", "internal/driver", "internal/cgroup"},
	{"cmd/glovebox-agent"},
	{"internal/guest/wire"},
	{"api"},
}

// free packages stand beside the layers: rules, suites that implementations
// are held against, and tests of the whole.
var free = []string{"internal/archtest", "internal/driver/drivertest", "internal/guest/guesttest", "internal/store/storetest", "test"}

// forbidden names imports that a layer order alone would allow.
var forbidden = []struct{ from, to, why string }{
	{"internal/egress", "internal/netstack", "policy judges, it does not carry packets"},
	{"internal/driver/gvisor", "internal/netstack", "a driver hands out its cable and knows nothing of what runs on it"},
	{"internal/driver/gvisor", "internal/image", "a driver mounts files, whatever they were made from"},
	{"internal/guest", "internal/driver", "a guest is the same behind every driver"},
	{"internal/control", "internal/driver/gvisor", "control does not know what isolates"},
	{"client", "internal/", "the client is for other programs"},
	{"internal/server", "internal/node", "the server has no logic of its own"},
	{"api", "", "the wire stands on nothing of ours"},
	{"cmd/glovebox-agent", "internal/driver", "the agent is the same in every driver"},
}

// pkgInfo is what go list tells of a package.
type pkgInfo struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func list(t *testing.T, args ...string) []pkgInfo {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps"}, args...)...)
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []pkgInfo
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkgInfo
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// local is a package's path below the module, or false for others' packages.
func local(importPath string) (string, bool) {
	return strings.CutPrefix(importPath, module+"/")
}

// layerOf finds the innermost listed folder that holds pkg.
func layerOf(pkg string) (int, string) {
	best, name := -1, ""
	for i, row := range layers {
		for _, l := range row {
			if (pkg == l || strings.HasPrefix(pkg, l+"/")) && len(l) > len(name) {
				best, name = i, l
			}
		}
	}
	return best, name
}

func isFree(pkg string) bool {
	return slices.ContainsFunc(free, func(f string) bool { return below(pkg, f) })
}

func below(pkg, folder string) bool {
	return folder == "" || pkg == strings.TrimSuffix(folder, "/") || strings.HasPrefix(pkg, strings.TrimSuffix(folder, "/")+"/")
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range list(t, "./...") {
		from, ok := local(p.ImportPath)
		if !ok || isFree(from) {
			continue
		}
		fromLayer, fromName := layerOf(from)
		if fromLayer < 0 {
			t.Errorf("%s has no place in the layers: give it one", from)
			continue
		}
		for _, imp := range p.Imports {
			to, ok := local(imp)
			if !ok {
				continue
			}
			toLayer, toName := layerOf(to)
			if toLayer < fromLayer || toLayer == fromLayer && toName != fromName {
				t.Errorf("%s imports %s, which is not below it", from, to)
			}
			for _, rule := range forbidden {
				if from == rule.from && below(to, rule.to) {
					t.Errorf("%s imports %s: %s", from, to, rule.why)
				}
			}
		}
	}
}

// TestAgentStaysSmall: the agent is PID 1 in every sandbox; what it links is
// memory in each and a surface that the guest can reach.
func TestAgentStaysSmall(t *testing.T) {
	allowed := []string{"cmd/glovebox-agent", "internal/guest/wire"}
	heavy := []string{"net/http", "os/exec", "encoding/json", "archive/tar", "compress/gzip", "crypto/tls", "text/template"}
	for _, p := range list(t, "./cmd/glovebox-agent") {
		for _, dep := range p.Deps {
			if slices.Contains(heavy, dep) {
				t.Errorf("the agent links %s", dep)
			}
			if pkg, ok := local(dep); ok && !slices.ContainsFunc(allowed, func(a string) bool { return below(pkg, a) }) {
				t.Errorf("the agent links %s", pkg)
			}
		}
	}
}

// TestKernelStaysInTheDriver: gVisor's kernel is linked through the driver
// alone, and its network stack through netstack alone, so that either can be
// replaced.
func TestKernelStaysInTheDriver(t *testing.T) {
	for _, p := range list(t, "./...") {
		from, ok := local(p.ImportPath)
		if !ok || isFree(from) {
			continue
		}
		for _, imp := range p.Imports {
			rest, ok := strings.CutPrefix(imp, "gvisor.dev/gvisor/")
			if !ok {
				continue
			}
			inDriver := below(from, "internal/driver/gvisor")
			network := strings.HasPrefix(rest, "pkg/tcpip") || strings.HasPrefix(rest, "pkg/buffer") || strings.HasPrefix(rest, "pkg/waiter")
			format := rest == "pkg/erofs" || rest == "pkg/errors/linuxerr" // layers as the sandbox kernel reads them
			if !inDriver && !(network && below(from, "internal/netstack")) && !(format && from == "internal/layer") {
				t.Errorf("%s imports %s", from, path.Join("gvisor.dev/gvisor", rest))
			}
		}
	}
}
