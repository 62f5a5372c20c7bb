// Package openapi writes an OpenAPI 3.1 description from a table of operations
// and the Go types of their bodies, so that it cannot say other fields than
// the code has.
package openapi

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Operation is one method on one path.
type Operation struct {
	ID      string // unique in the document
	Summary string
	Query   []Param // beside the parameters in the path
	Header  []Param
	// Body and Answer are values of the types of the JSON that is sent and
	// answered, nil for none; BodyType and AnswerType are media types where
	// it is not JSON.
	Body, Answer         any
	BodyType, AnswerType string
	Status               int  // of the answer, 200 by default
	Open                 bool // needs no token
}

// Param is an optional parameter.
type Param struct {
	Name, About string
	Enum        []string
	Integer     bool
}

// Info is what the document says of the whole.
type Info struct {
	Title, Version, Description string
	Error                       any // a value of the type of every answer that is an error
}

// object keeps the document short to write; encoding/json sorts its keys.
type object = map[string]any

// Document describes all operations, by "METHOD /path/{parameter}". Types lists
// schemas that reflection cannot find out.
func Document(info Info, operations map[string]Operation, types Types) map[string]any {
	s := &schemas{special: types, named: object{}}
	paths := object{}
	for key, op := range operations {
		method, path, _ := strings.Cut(key, " ")
		item, ok := paths[path].(object)
		if !ok {
			item = object{}
			paths[path] = item
		}
		item[strings.ToLower(method)] = op.describe(path, s, info)
	}
	return object{
		"openapi":    "3.1.0",
		"info":       object{"title": info.Title, "version": info.Version, "description": info.Description},
		"paths":      paths,
		"security":   []any{object{"token": []any{}}},
		"components": object{"schemas": s.named, "securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}}},
	}
}

func (op Operation) describe(path string, s *schemas, info Info) object {
	status := op.Status
	if status == 0 {
		status = http.StatusOK
	}
	answer := object{"description": http.StatusText(status)}
	if c := content(op.AnswerType, op.Answer, s); c != nil {
		answer["content"] = c
	}
	failed := object{"description": "An error, with its code and what to do about it", "content": content("", info.Error, s)}
	out := object{
		"operationId": op.ID,
		"summary":     op.Summary,
		"responses":   object{strconv.Itoa(status): answer, "default": failed},
	}
	if params := op.parameters(path); len(params) > 0 {
		out["parameters"] = params
	}
	if c := content(op.BodyType, op.Body, s); c != nil {
		out["requestBody"] = object{"content": c}
	}
	if op.Open {
		out["security"] = []any{}
	}
	return out
}

// content is nil where there is none. Several JSON values in a row have the
// schema of one.
func content(media string, value any, s *schemas) object {
	switch {
	case value != nil && media == "":
		return object{"application/json": object{"schema": s.of(value)}}
	case value != nil:
		return object{media: object{"schema": s.of(value)}}
	case media != "":
		return object{media: object{}}
	}
	return nil
}

func (op Operation) parameters(path string) []any {
	var out []any
	for segment := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			out = append(out, object{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": object{"type": "string"}})
		}
	}
	for _, p := range op.Query {
		out = append(out, p.describe("query"))
	}
	for _, p := range op.Header {
		out = append(out, p.describe("header"))
	}
	return out
}

func (p Param) describe(in string) object {
	schema := object{"type": "string"}
	if p.Integer {
		schema["type"] = "integer"
	}
	if len(p.Enum) > 0 {
		schema["enum"] = slices.Clone(p.Enum)
	}
	return object{"name": p.Name, "in": in, "description": p.About, "schema": schema}
}
