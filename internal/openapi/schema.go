package openapi

import (
	"fmt"
	"reflect"
	"strings"
)

// Types maps Go types, whose JSON form is their own code's, to the types or
// schemas that describe it: a map is a schema, everything else a value of the
// type to describe instead. A []any describes alternatives of both kinds.
type Types map[reflect.Type]any

// schemas collects those of named structs, to which all others refer.
type schemas struct {
	special Types
	named   object
}

func (s *schemas) of(value any) object { return s.ofType(reflect.TypeOf(value)) }

func (s *schemas) ofType(t reflect.Type) object {
	if special, ok := s.special[t]; ok {
		return s.instead(t, special)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.ofType(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		return object{"type": "array", "items": s.ofType(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.ofType(t.Elem())}
	case reflect.Interface:
		return object{}
	case reflect.Struct:
		return s.ofStruct(t)
	default:
		panic(fmt.Sprintf("openapi: %v has no schema", t))
	}
}

func (s *schemas) instead(t reflect.Type, special any) object {
	switch special := special.(type) {
	case object:
		return special
	case []any:
		any := make([]object, len(special))
		for i, alternative := range special {
			any[i] = s.instead(t, alternative)
		}
		return object{"anyOf": any}
	}
	if replaced := reflect.TypeOf(special); replaced != t {
		return s.ofType(replaced)
	}
	return s.ofStruct(t)
}

func (s *schemas) ofStruct(t reflect.Type) object {
	if t.Name() == "" {
		return s.fields(t)
	}
	if strings.HasPrefix(t.Name(), "Nullable[") { // of package api: null means something
		value, _ := t.FieldByName("Value")
		return object{"anyOf": []object{s.ofType(value.Type), {"type": "null"}}}
	}
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if _, known := s.named[name]; !known {
		s.named[name] = object{} // a type that holds itself ends here
		s.named[name] = s.fields(t)
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// fields describes what encoding/json makes of a struct. A field that may be
// left out, or be null, is not required.
func (s *schemas) fields(t reflect.Type) object {
	properties, required := object{}, []string{}
	for f := range fieldsOf(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		schema := s.ofType(f.Type)
		optional := strings.Contains(options, "omit")
		if f.Type.Kind() == reflect.Pointer && !optional {
			schema = object{"anyOf": []object{schema, {"type": "null"}}}
		}
		properties[name] = schema
		if !optional {
			required = append(required, name)
		}
	}
	out := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// fieldsOf goes into embedded structs, as encoding/json does.
func fieldsOf(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(t) {
			embedded := f.Anonymous && f.Tag.Get("json") == ""
			if !embedded && f.IsExported() && !yield(f) {
				return
			}
		}
	}
}
