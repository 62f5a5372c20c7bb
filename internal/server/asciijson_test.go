package server

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/api"
)

func TestAppendJSONIsASCII(t *testing.T) {
	in := "plain <&> café ☕ 你好 😀\u2028 \ufffd \x00\x1b \"\\ end"
	line, err := appendJSON(nil, map[string]string{"data": in})
	if err != nil {
		t.Fatal(err)
	}
	if i := asciiPrefix(line); i != len(line) {
		t.Errorf("byte %d of %q is not ASCII", i, line)
	}
	if strings.Count(string(line), "\n") != 1 || !strings.HasSuffix(string(line), "\n") {
		t.Errorf("%q is not one line", line)
	}
	if !strings.Contains(string(line), "<&>") {
		t.Errorf("%q: ASCII characters need no escape", line)
	}
	var out map[string]string
	if err := json.Unmarshal(line, &out); err != nil {
		t.Fatal(err)
	}
	if out["data"] != in {
		t.Errorf("read back %q, want %q", out["data"], in)
	}
}

func FuzzAppendJSON(f *testing.F) {
	f.Add("a☕")
	f.Add("\xff\xe2\x98")
	f.Add("😀\U0010FFFF")
	f.Fuzz(func(t *testing.T, s string) {
		line, err := appendJSON(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		var out string
		if err := json.Unmarshal(line, &out); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if utf8.ValidString(s) && out != s {
			t.Errorf("read back %q, want %q", out, s)
		}
		var log api.LogLine
		line = appendLog(nil, api.Stdout, s)
		if err := json.Unmarshal(line, &log); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if log.Data != out || asciiPrefix(line) != len(line) || strings.Count(string(line), "\n") != 1 {
			t.Errorf("item %q of %q", line, s)
		}
	})
}
