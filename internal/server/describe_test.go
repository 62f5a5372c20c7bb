package server

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestEveryRouteIsDescribed: the table of operations and that of routes hold
// the same calls.
func TestEveryRouteIsDescribed(t *testing.T) {
	described := operations()
	ids := map[string]string{}
	for _, r := range routes() {
		key := r.method + " " + r.path
		op, ok := described[key]
		if !ok {
			t.Errorf("%s is not described: add it to the operations in internal/server", key)
			continue
		}
		delete(described, key)
		if op.Open != r.open {
			t.Errorf("%s: open is %v in the description and %v in the routes", key, op.Open, r.open)
		}
		if op.Summary == "" || op.ID == "" {
			t.Errorf("%s: the description lacks its id or its summary", key)
		}
		if other, taken := ids[op.ID]; taken {
			t.Errorf("%s and %s are both called %s", key, other, op.ID)
		}
		ids[op.ID] = key
	}
	for _, key := range slices.Sorted(maps.Keys(described)) {
		t.Errorf("%s is described and is no route", key)
	}
}

// TestDescriptionHoldsTogether: every reference in it leads somewhere.
func TestDescriptionHoldsTogether(t *testing.T) {
	doc := describedAPI(t)
	named := doc["components"].(map[string]any)["schemas"].(map[string]any)
	walk(doc, func(node map[string]any) {
		ref, ok := node["$ref"].(string)
		if !ok {
			return
		}
		if _, there := named[strings.TrimPrefix(ref, "#/components/schemas/")]; !there {
			t.Errorf("%s leads nowhere", ref)
		}
	})
	if len(named) < 30 {
		t.Errorf("only %d types are described", len(named))
	}
}

func describedAPI(t *testing.T) map[string]any {
	t.Helper()
	text, err := description()
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

func walk(node any, visit func(map[string]any)) {
	switch node := node.(type) {
	case map[string]any:
		visit(node)
		for _, v := range node {
			walk(v, visit)
		}
	case []any:
		for _, v := range node {
			walk(v, visit)
		}
	}
}
