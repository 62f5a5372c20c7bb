package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestExamplesMatchDescription: each JSON answer in testdata/wire has the form
// that the description gives it, and no field that it lacks.
func TestExamplesMatchDescription(t *testing.T) {
	files, err := filepath.Glob("testdata/wire/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	doc, rt, checked := describedAPI(t), newRouter(routes()), 0
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(archive.Files); i += 2 {
			request, answer := string(archive.Files[i].Data), string(archive.Files[i+1].Data)
			schema, body := exampleOf(t, doc, rt, request, answer)
			if schema == nil {
				continue
			}
			checked++
			if err := conforms(doc, schema, body, "answer"); err != nil {
				t.Errorf("%s: %s: %v", file, strings.SplitN(request, "\n", 2)[0], err)
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d examples were checked", checked)
	}
}

// exampleOf finds the schema of an answer and its body; nil where it is not
// JSON or its call is none of the API's.
func exampleOf(t *testing.T, doc map[string]any, rt *router, request, answer string) (schema map[string]any, body any) {
	t.Helper()
	method, target, _ := strings.Cut(strings.SplitN(request, "\n", 2)[0], " ")
	u, err := url.Parse(target)
	if err != nil {
		return nil, nil
	}
	route, _, _ := rt.find(method, u)
	head, text, ok := strings.Cut(answer, "\n\n")
	if route == nil || !ok || !strings.Contains(head, "Content-Type: application/json") {
		return nil, nil
	}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&body); err != nil {
		return nil, nil
	}
	status, err := bufio.NewReader(strings.NewReader(head + "\n")).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	operation := at(doc, "paths", route.path, strings.ToLower(route.method), "responses")
	code := strings.TrimSpace(status)
	if n, err := strconv.Atoi(code); err == nil && n >= 400 && route.path != "/healthz" {
		code = "default"
	}
	if _, described := operation[code]; !described {
		code = "200" // a drive that was made, a server that is not ready: the same form
	}
	return at(operation, code, "content", "application/json", "schema"), body
}

func at(node map[string]any, keys ...string) map[string]any {
	for _, k := range keys {
		node, _ = node[k].(map[string]any)
	}
	return node
}

// conforms checks the part of JSON Schema that the description uses.
func conforms(doc, schema map[string]any, value any, where string) error {
	if ref, ok := schema["$ref"].(string); ok {
		return conforms(doc, at(doc, "components", "schemas", strings.TrimPrefix(ref, "#/components/schemas/")), value, where)
	}
	if anyOf, ok := schema["anyOf"].([]any); ok {
		var last error
		for _, alternative := range anyOf {
			if last = conforms(doc, alternative.(map[string]any), value, where); last == nil {
				return nil
			}
		}
		return last
	}
	if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, value) {
		return fmt.Errorf("%s: %v is none of %v", where, value, enum)
	}
	want, got := schema["type"], kindOf(value)
	if want != nil && want != got && !(want == "number" && got == "integer") {
		return fmt.Errorf("%s: is %s, described as %v", where, got, want)
	}
	switch value := value.(type) {
	case []any:
		for i, v := range value {
			if err := conforms(doc, at(schema, "items"), v, fmt.Sprintf("%s[%d]", where, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		return conformsObject(doc, schema, value, where)
	}
	return nil
}

func conformsObject(doc, schema, value map[string]any, where string) error {
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := value[name.(string)]; !ok {
			return fmt.Errorf("%s: lacks %s", where, name)
		}
	}
	for name, v := range value {
		property := at(schema, "properties", name)
		if property == nil {
			property = at(schema, "additionalProperties")
		}
		if property == nil {
			return fmt.Errorf("%s: has %s, which is not described", where, name)
		}
		if err := conforms(doc, property, v, where+"."+name); err != nil {
			return err
		}
	}
	return nil
}

func kindOf(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	}
	return "object"
}
