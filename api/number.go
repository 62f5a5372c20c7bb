package api

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strconv"
)

// maxInt is the largest integer that a JSON number holds exactly in every client.
const maxInt = 1<<53 - 1

// Int is an optional integer of a request. Unlike *int64 it tells null from
// absent, because a client's NaN arrives as null, and it takes 5.0 and 1e12
// for the integers that they are, but neither 0.5 nor 1e30, "5" nor true.
// The zero value is absent and is left out where the tag says omitzero.
type Int struct {
	value int64
	set   bool
}

// IntOf returns a present Int.
func IntOf(v int64) Int { return Int{value: v, set: true} }

// Get returns the value, and whether there is one.
func (i Int) Get() (int64, bool) { return i.value, i.set }

// IsSet tells whether there is a value.
func (i Int) IsSet() bool { return i.set }

// Or returns the value, or def where there is none.
func (i Int) Or(def int64) int64 {
	if i.set {
		return i.value
	}
	return def
}

// IsZero makes the tag omitzero leave out an absent value only.
func (i Int) IsZero() bool { return !i.set }

// MarshalJSON writes the value, or null where there is none.
func (i Int) MarshalJSON() ([]byte, error) {
	if !i.set {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, i.value, 10), nil
}

// UnmarshalJSON takes a JSON number that is an integer, and nothing else.
func (i *Int) UnmarshalJSON(b []byte) error {
	if v, err := strconv.ParseInt(string(b), 10, 64); err == nil && v >= -maxInt && v <= maxInt {
		*i = IntOf(v)
		return nil
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > maxInt || !isNumber(b) {
		// The decoder adds the field's path to an error of this type only.
		return &json.UnmarshalTypeError{Value: describe(b), Type: reflect.TypeFor[Int]()}
	}
	*i = IntOf(int64(f))
	return nil
}

// isNumber excludes the words that ParseFloat knows (inf, nan).
func isNumber(b []byte) bool { return len(b) > 0 && (b[0] == '-' || b[0] >= '0' && b[0] <= '9') }

func describe(b []byte) string {
	if len(b) > 40 {
		return string(b[:40]) + "…"
	}
	return string(b)
}

// Nullable is an optional field for which null means something of its own.
type Nullable[T any] struct {
	Set   bool // present, null or not
	Null  bool
	Value T // where Set and not Null
}

// ValueOf returns a present Nullable.
func ValueOf[T any](v T) Nullable[T] { return Nullable[T]{Set: true, Value: v} }

// IsZero makes the tag omitzero leave out an absent value only.
func (n Nullable[T]) IsZero() bool { return !n.Set }

// MarshalJSON writes the value or null.
func (n Nullable[T]) MarshalJSON() ([]byte, error) {
	if !n.Set || n.Null {
		return []byte("null"), nil
	}
	return json.Marshal(n.Value)
}

// UnmarshalJSON takes null or a T.
func (n *Nullable[T]) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*n = Nullable[T]{Set: true, Null: true}
		return nil
	}
	n.Set, n.Null = true, false
	return keepTypeError(json.Unmarshal(b, &n.Value))
}

// keepTypeError passes a type error on bare, so that an enclosing decoder
// still recognises it and completes its field path.
func keepTypeError(err error) error {
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return te
	}
	return err
}
