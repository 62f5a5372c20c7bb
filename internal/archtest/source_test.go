package archtest

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const module = "github.com/glovebox-dev/glovebox"

// root is the repository, seen from this package.
const root = "../.."

// Longest files that people read. Generated ones are exempt; tables of cases
// make tests longer.
const (
	maxLines     = 400
	maxTestLines = 600
)

// source is one Go file of the repository.
type source struct {
	path      string // slashes, from the root
	text      []byte
	generated bool
}

func (s source) pkg() string  { return path.Join(module, path.Dir(s.path)) }
func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

var generatedLine = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// sources lists all Go files that belong to the repository.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	for _, p := range files(t, ".go") {
		text, err := os.ReadFile(filepath.Join(root, p))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, source{path: p, text: text, generated: generatedLine.Match(text)})
	}
	if len(all) == 0 {
		t.Fatal("no Go files found: is root right?")
	}
	return all
}

// files lists the repository's files with one of the endings.
func files(t *testing.T, endings ...string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case ".git", ".glovebox", "bin", "node_modules", "testdata":
				return filepath.SkipDir
			}
			return nil
		}
		for _, e := range endings {
			if strings.HasSuffix(p, e) {
				all = append(all, filepath.ToSlash(rel))
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestFilesCanBeRead(t *testing.T) {
	for _, s := range sources(t) {
		limit := maxLines
		if s.isTest() {
			limit = maxTestLines
		}
		if n := bytes.Count(s.text, []byte("\n")); n > limit && !s.generated {
			t.Errorf("%s has %d lines: split it by what its parts do (at most %d)", s.path, n, limit)
		}
	}
}

func TestOneCommentPerPackage(t *testing.T) {
	comments := map[string][]string{}
	packages := map[string]bool{}
	for _, s := range sources(t) {
		if s.isTest() {
			continue
		}
		packages[s.pkg()] = true
		f, err := parser.ParseFile(token.NewFileSet(), s.path, s.text, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Error(err)
			continue
		}
		if f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" {
			comments[s.pkg()] = append(comments[s.pkg()], s.path)
		}
	}
	for pkg := range packages {
		if where := comments[pkg]; len(where) != 1 {
			t.Errorf("%s has %d package comments, want exactly one: %v", pkg, len(where), where)
		}
	}
}

// promise finds notes about work that is not done, which belong in a tracker,
// and paths of somebody's own machine.
var (
	promise     = regexp.MustCompile(`\b(` + `TO` + `DO|FIX` + `ME|XX` + `X|HACK)\b`)
	machinePath = regexp.MustCompile(`(/Users/[A-Za-z]|/work/[a-z]|/root/go\b)`)
)

func TestNoPromisesAndNoMachinePaths(t *testing.T) {
	for _, p := range files(t, ".go", ".mjs", ".md", ".txtar", "Makefile", ".yml") {
		if p == "internal/archtest/source_test.go" {
			continue
		}
		f, err := os.Open(filepath.Join(root, p))
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for n := 1; lines.Scan(); n++ {
			if m := promise.FindString(lines.Text()); m != "" {
				t.Errorf("%s:%d says %s: do it, or file it", p, n, m)
			}
			if m := machinePath.FindString(lines.Text()); m != "" {
				t.Errorf("%s:%d holds a path of one machine: %s", p, n, m)
			}
		}
		if err := lines.Err(); err != nil {
			t.Errorf("%s: %v", p, err)
		}
		f.Close()
	}
}

// TestErrorsNameTheirObject: "failed to" says nothing that an error does not
// say already, and takes the place of the object's name.
func TestErrorsNameTheirObject(t *testing.T) {
	for _, s := range sources(t) {
		if s.generated || s.isTest() {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), s.path, s.text, 0)
		if err != nil {
			t.Error(err)
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.HasPrefix(strings.Trim(lit.Value, "`\""), "failed to ") {
				t.Errorf("%s: %s: name the operation and its object instead", s.path, lit.Value)
			}
			return true
		})
	}
}
