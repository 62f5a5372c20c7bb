package egress

import (
	"os"
	"regexp"
	"testing"
)

// TestDocumentedPolicies: what docs/network.md shows is accepted.
func TestDocumentedPolicies(t *testing.T) {
	doc, err := os.ReadFile("../../docs/network.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(doc, -1)
	if len(examples) < 3 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, e := range examples {
		if p := mustParse(t, string(e[1])); !p.HasRules() {
			t.Errorf("no rules in %s", e[1])
		}
	}
}
