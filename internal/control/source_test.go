package control

import (
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
)

// runScript runs what a sandbox would, on this host.
func runScript(t *testing.T, dir string, argv []string, input string) (output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := runScript(t, dir, append([]string{"git", "-c", "user.name=n", "-c", "user.email=e@e", "-c", "init.defaultBranch=main"}, args...), "")
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(out)
}

// gitServer serves a repository with three commits and a tag; with a password
// it wants "user" and that.
func gitServer(t *testing.T, password string) (base string, commits []string) {
	t.Helper()
	exe, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	root := t.TempDir()
	work := filepath.Join(root, "work")
	git(t, root, "init", "-q", work)
	for _, n := range []string{"one", "two", "three"} {
		if err := os.WriteFile(filepath.Join(work, "file"), []byte(n), 0o600); err != nil {
			t.Fatal(err)
		}
		git(t, work, "add", "file")
		git(t, work, "commit", "-qm", n)
		commits = append(commits, git(t, work, "rev-parse", "HEAD"))
	}
	git(t, work, "tag", "v2", commits[1])
	git(t, root, "clone", "-q", "--bare", work, filepath.Join(root, "repo.git"))
	handler := &cgi.Handler{Path: exe, Args: []string{"http-backend"}, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}, Stderr: io.Discard}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pass, _ := r.BasicAuth(); password != "" && (user != "user" || pass != password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, commits
}

func TestGitScript(t *testing.T) {
	base, commits := gitServer(t, "")
	for _, c := range []struct {
		name, revision string
		depth          int64
		want           string
		commits        string
	}{
		{"plain", "", 0, "three", "3"},
		{"shallow", "", 1, "three", "1"},
		{"branch", "main", 1, "three", "1"},
		{"tag", "v2", 0, "two", "2"},
		{"commit", commits[0], 1, "one", "1"},
		{"short commit", commits[1][:8], 0, "two", "2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := &api.Source{Type: "git", URL: base + "/repo.git", Revision: c.revision}
			if c.depth > 0 {
				src.Depth = api.IntOf(c.depth)
			}
			if err := src.Validate(); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			argv, input, _ := gitSource(src)
			if out, err := runScript(t, dir, argv, input); err != nil || out != "" {
				t.Fatalf("%v: %s", err, out)
			}
			b, err := os.ReadFile(filepath.Join(dir, "repo", "file"))
			if err != nil || string(b) != c.want {
				t.Errorf("%q, %v", b, err)
			}
			if n := git(t, filepath.Join(dir, "repo"), "rev-list", "--count", "HEAD"); n != c.commits {
				t.Errorf("%s commits", n)
			}
		})
	}
	t.Run("errors", func(t *testing.T) {
		for rev, u := range map[string]string{"": base + "/none.git", "no-such-revision": base + "/repo.git"} {
			argv, input, _ := gitSource(&api.Source{Type: "git", URL: u, Revision: rev})
			if out, err := runScript(t, t.TempDir(), argv, input); err == nil || out == "" {
				t.Errorf("%s: %v, %q", u, err, out)
			}
		}
	})
}

func TestGitScriptCredentials(t *testing.T) {
	const password = `p@ss w$rd"'\`
	base, commits := gitServer(t, password)
	u, err := url.Parse(base + "/repo.git")
	if err != nil {
		t.Fatal(err)
	}
	inURL := *u
	inURL.User = url.UserPassword("user", password)
	for name, src := range map[string]*api.Source{
		"fields":       {Type: "git", URL: u.String(), Username: "user", Password: password},
		"in the URL":   {Type: "git", URL: inURL.String()},
		"and a commit": {Type: "git", URL: u.String(), Username: "user", Password: password, Revision: commits[0][:10]},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			argv, input, _ := gitSource(src)
			if strings.Contains(strings.Join(argv, " "), "p@ss") || strings.Contains(strings.Join(argv, " "), "p%40ss") {
				t.Error("the password is on the command line")
			}
			if out, err := runScript(t, dir, argv, input); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, f := range []string{"config", "FETCH_HEAD"} {
				b, err := os.ReadFile(filepath.Join(dir, "repo", ".git", f))
				if err == nil && strings.Contains(string(b), "ss") && strings.Contains(string(b), "w$rd") {
					t.Errorf("%s holds the password", f)
				}
			}
		})
	}
	argv, input, secrets := gitSource(&api.Source{Type: "git", URL: u.String(), Username: "user", Password: "wrong"})
	out, err := runScript(t, t.TempDir(), argv, input)
	if err == nil || out == "" {
		t.Errorf("wrong password: %v, %q", err, out)
	}
	if strings.Contains(redact(out, secrets), "wrong") {
		t.Error("told:", out)
	}
}

func TestTarballScript(t *testing.T) {
	for _, tool := range []string{"curl", "tar"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs", tool)
		}
	}
	plain := makeTar(t, "d/f", "text")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/x.tgz":
			w.Write(gz(t, plain)) //nolint:errcheck // the client tells
		case "/x.tar":
			w.Write(plain) //nolint:errcheck // the client tells
		case "/redirect":
			http.Redirect(w, r, "/x.tgz", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	for _, p := range []string{"/x.tgz", "/x.tar", `/redirect?a=b"c\d`} {
		dir := t.TempDir()
		argv, input, _ := tarballSource(&api.Source{Type: "tarball", URL: srv.URL + p})
		if out, err := runScript(t, dir, argv, input); err != nil {
			t.Fatalf("%s: %v: %s", p, err, out)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "d", "f")); err != nil || string(b) != "text" {
			t.Errorf("%s: %q, %v", p, b, err)
		}
	}
	argv, input, _ := tarballSource(&api.Source{Type: "tarball", URL: srv.URL + "/none"})
	if out, err := runScript(t, t.TempDir(), argv, input); err == nil || !strings.Contains(out, "404") {
		t.Errorf("%v: %s", err, out)
	}
}
