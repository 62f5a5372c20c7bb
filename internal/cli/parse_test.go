package cli

import (
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"1": 1, "1k": 1 << 10, "512m": 512 << 20, "2g": 2 << 30, "2G": 2 << 30, "2GiB": 2 << 30, "1.5g": 3 << 29, "1t": 1 << 40,
	} {
		if got, err := parseSize("--memory", in); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "g", "-1g", "0", "nan", "inf", "1e30", "2x", "9999999t"} {
		if got, err := parseSize("--memory", in); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", in, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{"30s": 30 * time.Second, "5m": 5 * time.Minute, "1.5": 1500 * time.Millisecond} {
		if got, err := parseDuration("--timeout", in); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "soon", "-1s", "0"} {
		if _, err := parseDuration("--timeout", in); err == nil {
			t.Errorf("parseDuration(%q) succeeded", in)
		}
	}
}

func TestParsePlace(t *testing.T) {
	for in, want := range map[string]place{
		"web:/etc/hosts": {"web", "/etc/hosts"},
		"web:":           {"web", "."},
		"./a:b":          {"", "./a:b"},
		"/tmp/a:b":       {"", "/tmp/a:b"},
		"file":           {"", "file"},
		":x":             {"", ":x"},
		"-":              {"", "-"},
	} {
		if got := parsePlace(in); got != want {
			t.Errorf("parsePlace(%q) = %+v, want %+v", in, got, want)
		}
	}
}

func TestResources(t *testing.T) {
	for _, c := range []struct {
		memory string
		cpus   int
		want   int64
		fails  bool
	}{
		{"", 0, 0, false}, {"", 4, 4, false}, {"512m", 0, 1, false}, {"2g", 0, 1, false},
		{"3g", 0, 2, false}, {"5g", 0, 4, false}, {"4g", 2, 2, false}, {"2g", 4, 4, false}, {"8g", 2, 0, true},
	} {
		f := sandboxFlags{memory: c.memory, cpus: c.cpus}
		r, err := f.resources()
		if (err != nil) != c.fails {
			t.Errorf("memory %q cpus %d: error %v", c.memory, c.cpus, err)
			continue
		}
		var got int64
		if r != nil {
			got = r.VCPUs.Or(0)
		}
		if got != c.want {
			t.Errorf("memory %q cpus %d: %d vCPUs, want %d", c.memory, c.cpus, got, c.want)
		}
	}
}

func TestShellQuote(t *testing.T) {
	for in, want := range map[string]string{"": "''", "plain-1.2/x": "plain-1.2/x", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'"} {
		if got := shellQuote(in); got != want {
			t.Errorf("shellQuote(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestExportsLoadTheHookOnce(t *testing.T) {
	first := exports("http://h", "t", "p", "/data dir/register.mjs", "--max-old-space-size=100")
	options := first[len(first)-1].Value
	if options != "--max-old-space-size=100 --import=file:///data%20dir/register.mjs" {
		t.Errorf("NODE_OPTIONS %q", options)
	}
	again := exports("http://h", "t", "p", "/data dir/register.mjs", options)
	if got := again[len(again)-1].Value; got != options {
		t.Errorf("evaluated twice: %q", got)
	}
}
