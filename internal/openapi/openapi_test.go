package openapi

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type choice string

type inner struct {
	Next *inner `json:"next,omitempty"`
}

type example struct {
	ID     string         `json:"id"`
	Count  *int           `json:"count"`
	Choice choice         `json:"choice,omitempty"`
	List   []inner        `json:"list,omitempty"`
	Map    map[string]any `json:"map,omitempty"`
	hidden int
}

func TestSchema(t *testing.T) {
	types := Types{reflect.TypeFor[choice](): map[string]any{"type": "string", "enum": []string{"a", "b"}}}
	doc := Document(Info{Title: "T", Error: inner{}}, map[string]Operation{
		"POST /a/{b}": {ID: "x", Summary: "s", Query: []Param{{Name: "n", Integer: true}}, Body: example{hidden: 1}, AnswerType: "text/plain", Status: 201},
	}, types)
	got, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var parsed, want any
	if err := json.Unmarshal(got, &parsed); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(wanted), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, parsed); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

const wanted = `{
  "openapi": "3.1.0", "info": {"title": "T", "version": "", "description": ""}, "security": [{"token": []}],
  "paths": {"/a/{b}": {"post": {
    "operationId": "x", "summary": "s",
    "parameters": [
      {"name": "b", "in": "path", "required": true, "schema": {"type": "string"}},
      {"name": "n", "in": "query", "description": "", "schema": {"type": "integer"}}],
    "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Example"}}}},
    "responses": {
      "201": {"description": "Created", "content": {"text/plain": {}}},
      "default": {"description": "An error, with its code and what to do about it", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Inner"}}}}}}}},
  "components": {
    "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    "schemas": {
      "Inner": {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Inner"}}},
      "Example": {"type": "object", "required": ["id", "count"], "properties": {
        "id": {"type": "string"},
        "count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "choice": {"type": "string", "enum": ["a", "b"]},
        "list": {"type": "array", "items": {"$ref": "#/components/schemas/Inner"}},
        "map": {"type": "object", "additionalProperties": {}}}}}}
}`
