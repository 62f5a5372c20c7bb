package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Unmarshal decodes the JSON body of a request into v, a pointer to one of
// this package's request types. Every error is an *Error that says which
// field is wrong and what it may be. An empty body is read as {}.
func Unmarshal(body []byte, v any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	err := json.Unmarshal(body, v)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return typeError(te)
	}
	if se, ok := errors.AsType[*json.SyntaxError](err); ok {
		return BadRequest("body: not valid JSON at byte %d: %s", se.Offset, se.Error())
	}
	return BadRequest("body: %s", err)
}

func typeError(te *json.UnmarshalTypeError) *Error {
	where := "body"
	if te.Field != "" {
		where = "field " + te.Field
	}
	return BadRequest("%s: must be %s, got %s", where, wanted(te.Type), strings.TrimPrefix(te.Value, "number "))
}

// wanted names a Go type in the words of JSON.
func wanted(t reflect.Type) string {
	if t == reflect.TypeFor[Int]() {
		return "an integer"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Pointer:
		return wanted(t.Elem())
	default:
		return fmt.Sprintf("a %s", t.Kind())
	}
}
