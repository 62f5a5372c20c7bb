package image

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeTools puts stand-ins for the host's tools on the PATH: one that writes a
// prepared archive, one that writes prepared packages.
func fakeTools(t *testing.T, mmdebstrap string) {
	t.Helper()
	dir := t.TempDir()
	system := tarOf(t, "etc/passwd=root:x:0:0::/root:\n"+defaultUser+":x:1000:1000::"+defaultHome+":\n", "etc/hostname=host", "usr/lib/python3.13/EXTERNALLY-MANAGED=")
	node := gzipped(tarOf(t, "package/bin/node=binary", "package/LICENSE=licence", "package/include/x.h=header"))
	npm := gzipped(tarOf(t, "package/bin/npm-cli.js=npm", "package/bin/npx-cli.js=npx", "package/man/man1=manual"))
	for name, content := range map[string][]byte{"system.tar": system, "node.tgz": node, "npm.tgz": npm, "keys": nil} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	scripts := map[string]string{
		"mmdebstrap": "#!/bin/sh\n" + strings.ReplaceAll(mmdebstrap, "DIR", dir),
		"npm": strings.ReplaceAll(`#!/bin/sh
case "$2" in node-*) f=node;; *) f=npm;; esac
cp DIR/$f.tgz "$5/$f.tgz"
echo '[{"filename":"'$f.tgz'"}]'
`, "DIR", dir),
	}
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	old := keyring
	keyring = filepath.Join(dir, "keys")
	t.Cleanup(func() { keyring = old })
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the recipe needs root")
	}
}

func TestBuild(t *testing.T) {
	needRoot(t)
	fakeTools(t, "echo 'I: installing packages...' >&2\necho run >> DIR/runs\ncat DIR/system.tar\n")
	runs := func() int {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(keyring), "runs"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(b), "run")
	}
	s := openStore(t, Options{PullMissing: true})
	var details []string
	img, err := s.Build(ctx, BuildOptions{Progress: func(p Progress) { details = append(details, p.Detail) }})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/etc/passwd=root:x:0:0::/root:\n" + defaultUser + ":x:1000:1000::" + defaultHome + ":\n",
		"/etc/sudoers.d/" + defaultUser + "=" + sudoers,
		"/usr/bin/python->python3",
		"/usr/local/bin/node=binary",
		"/usr/local/bin/npm->../lib/node_modules/npm/bin/npm-cli.js",
		"/usr/local/bin/npx->../lib/node_modules/npm/bin/npx-cli.js",
		"/usr/local/etc/npmrc=" + npmrc,
		"/usr/local/lib/node_modules/npm/bin/npm-cli.js=npm",
		"/usr/local/lib/node_modules/npm/bin/npx-cli.js=npx",
		"/usr/local/share/doc/node/LICENSE=licence",
	}
	if d := cmp.Diff(want, files(t, img)); d != "" {
		t.Error(d)
	}
	if !slices.Contains(details, "installing packages...") {
		t.Errorf("reports: %q", details)
	}
	if img.Reference != DefaultReference || img.Config.WorkingDir != "/vercel/sandbox" || img.Config.User.UID != 1000 || img.Config.User.Home != "/home/vercel-sandbox" {
		t.Errorf("%+v", img)
	}
	for _, ref := range []string{"", "node24", DefaultReference} {
		if got, err := s.Resolve(ctx, ref, nil); err != nil || got.Digest != img.Digest {
			t.Errorf("%q: %v", ref, err)
		}
	}
	if again, err := s.Build(ctx, BuildOptions{}); err != nil || again.Digest != img.Digest || runs() != 1 {
		t.Errorf("built %d times, %v", runs(), err)
	}
	if again, err := s.Build(ctx, BuildOptions{Force: true}); err != nil || again.Digest != img.Digest || runs() != 2 {
		t.Errorf("forced: built %d times to %s, %v", runs(), again.Digest, err)
	}
	assertNothingLeft(t, s)
}

func TestBuildErrors(t *testing.T) {
	needRoot(t)
	for name, tt := range map[string]struct{ script, text string }{
		"failure":     {"echo 'E: the mirror is away' >&2\nexit 25\n", "E: the mirror is away"},
		"half a tar":  {"head -c 540 DIR/system.tar\n", "bad archive"},
		"fails later": {"cat DIR/system.tar\necho 'E: too late' >&2\nexit 1\n", "E: too late"},
		"no user":     {"tar -cf - -C DIR keys\n", defaultUser},
	} {
		t.Run(name, func(t *testing.T) {
			fakeTools(t, tt.script)
			s := openStore(t, Options{})
			if _, err := s.Build(ctx, BuildOptions{}); err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v", err)
			}
			assertNothingLeft(t, s)
		})
	}
	t.Run("missing tools", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		s := openStore(t, Options{})
		if _, err := s.Build(ctx, BuildOptions{}); !errors.Is(err, ErrMissingTool) || !strings.Contains(err.Error(), "apt-get install mmdebstrap npm") {
			t.Errorf("error %v", err)
		}
	})
}

func TestCloseEndsABuild(t *testing.T) {
	needRoot(t)
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip(err)
	}
	fakeTools(t, "echo 'I: waiting...' >&2\nsleep 1000\n")
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	done := make(chan error, 1)
	caller, cancel := context.WithCancel(ctx)
	go func() {
		_, err := s.Build(caller, BuildOptions{Progress: func(p Progress) {
			if p.Detail == "waiting..." {
				close(started)
			}
		}})
		done <- err
	}()
	<-started
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller got %v", err)
	}
	if err := s.Close(); err != nil { // waits for the build, which it ends
		t.Error(err)
	}
	if exists(s.scratch.Path()) {
		t.Error("the scratch directory is left")
	}
}
