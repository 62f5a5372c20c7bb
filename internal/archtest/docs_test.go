package archtest

import (
	"bytes"
	"debug/buildinfo"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`\]\(([^)#][^)]*)\)`)

// TestLinksLead: relative links in the documents lead to files.
func TestLinksLead(t *testing.T) {
	for _, p := range files(t, ".md") {
		text, err := os.ReadFile(filepath.Join(root, p))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			u, err := url.Parse(m[1])
			if err != nil || u.Scheme != "" {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, path.Dir(p), u.Path)); err != nil {
				t.Errorf("%s links to %s, which is not there", p, m[1])
			}
		}
	}
}

// TestEnvironmentIsDocumented: each variable that the code reads stands in
// docs/configuration.md.
func TestEnvironmentIsDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root, "docs/configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`"(GLOVEBOX_[A-Z_]+)"`)
	// Between the binary and itself, as a sandbox's kernel.
	internal := []string{"GLOVEBOX_JOIN"}
	for _, s := range sources(t) {
		if pkg, _ := local(s.pkg()); s.isTest() || isFree(pkg) {
			continue
		}
		for _, m := range name.FindAllSubmatch(s.text, -1) {
			if !bytes.Contains(doc, m[1]) && !slices.Contains(internal, string(m[1])) {
				t.Errorf("%s reads %s, which docs/configuration.md does not mention", s.path, m[1])
			}
		}
	}
}

// TestDependenciesAreKnown: what is linked into the binary is a list that
// changes on purpose.
func TestDependenciesAreKnown(t *testing.T) {
	info, err := buildinfo.ReadFile(filepath.Join(root, "bin/glovebox"))
	if err != nil {
		t.Skip("needs bin/glovebox: run make build")
	}
	var got []string
	for _, dep := range info.Deps {
		got = append(got, dep.Path)
	}
	slices.Sort(got)
	text, err := os.ReadFile(filepath.Join(root, "docs/dependencies.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(string(text))
	for _, m := range got {
		if !slices.Contains(want, m) {
			t.Errorf("new dependency %s: add it to docs/dependencies.txt if it is worth it", m)
		}
	}
	for _, m := range want {
		if !slices.Contains(got, m) {
			t.Errorf("%s is no longer linked: remove it from docs/dependencies.txt", m)
		}
	}
}
