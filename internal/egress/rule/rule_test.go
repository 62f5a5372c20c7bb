package rule

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
)

func compile(t testing.TB, js string) Set {
	t.Helper()
	var in []api.PolicyRule
	if err := json.Unmarshal([]byte(js), &in); err != nil {
		t.Fatal(err)
	}
	var out Set
	for _, r := range in {
		c, err := Compile(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		"/":                         "/",
		"/a/b":                      "/a/b",
		"/a//b///c":                 "/a/b/c",
		"//a":                       "/a",
		"/a/./b/../c":               "/a/c",
		"/a/%2e%2E/b":               "/b",
		"/%2e":                      "/",
		"/a/..":                     "/",
		"/a/b/..":                   "/a/",
		"/a/":                       "/a/",
		"/../../x":                  "/x",
		"/%61%7E%2d":                "/a~-",
		"/a%2fb":                    "/a%2Fb",
		"/@scope%2Fname":            "/@scope%2Fname",
		"/a b\"<\\":                 "/a%20b%22%3C%5C",
		"/\xff":                     "/%FF",
		"/%c3%a9":                   "/%C3%A9",
		"/a%252e":                   "/a%252e",
		"/a;b=c/d":                  "/a;b=c/d",
		"/x/" + "../" + "%2e./../y": "/y",
	} {
		if got, err := Canonical(in); err != nil || got != want {
			t.Errorf("%q is %q, %v; want %q", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "a", "*", "/%", "/%2", "/%zz", "/a%00b"} {
		if got, err := Canonical(bad); !errors.Is(err, ErrPath) {
			t.Errorf("%q is %q, %v", bad, got, err)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"/a/../b", "/%2e%2e/%2F", "//", "/;/..;a", "/%25%32e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := Canonical(s)
		if err != nil {
			return
		}
		if again, err := Canonical(c); err != nil || again != c {
			t.Errorf("%q: %q becomes %q, %v", s, c, again, err)
		}
		for seg := range strings.SplitSeq(c[1:], "/") {
			if seg == "." || seg == ".." {
				t.Errorf("%q: %q has a dot segment", s, c)
			}
		}
		if strings.Contains(c, "//") || c[0] != '/' {
			t.Errorf("%q: %q", s, c)
		}
		for _, r := range readings(c) {
			if strings.Contains(r, "//") || r[0] != '/' {
				t.Errorf("%q: reading %q", s, r)
			}
		}
	})
}

func TestFind(t *testing.T) {
	s := compile(t, `[
		{"match":{"method":["POST","put"],"path":{"startsWith":"/v1/"},"headers":[{"key":{"exact":"X-Api-Key"},"value":{"exact":"placeholder"}}]},"transform":[]},
		{"match":{"path":{"regex":"^/repos/[a-z]+/[a-z]+$"},"method":["GET"]},"transform":[]},
		{"match":{"queryString":[{"key":{"exact":"tenant"},"value":{"regex":"^(a|b)$"}},{"key":{"startsWith":"v"}}]},"transform":[]},
		{"match":{"path":{"exact":"/caf\u00e9 x"}},"transform":[]},
		{"match":{"headers":[{"key":{"regex":"^x-Trace"}}]},"response":{"statusCode":403}}
	]`)
	key := http.Header{"X-Api-Key": {"other", "placeholder"}}
	for _, tc := range []struct {
		method, target string
		header         http.Header
		want           int
	}{
		{"POST", "/v1/x", key, 0},
		{"PUT", "/v1/x", key, 0},
		{"GET", "/v1/x", key, -1},
		{"POST", "/v1", key, -1},
		{"POST", "/v1/x", nil, -1},
		{"GET", "/repos/a/b", nil, 1},
		{"GET", "/repos/a/b/", nil, -1},
		{"HEAD", "/repos/a/b", nil, -1},
		{"GET", "/q?tenant=a&v2=", nil, 2},
		{"GET", "/q?tenant=c&tenant=b&version", nil, 2},
		{"GET", "/q?ten%61nt=%61&v", nil, 2},
		{"GET", "/q?tenant=a", nil, -1},
		{"GET", "/q?tenant=ab&v", nil, -1},
		{"GET", "/caf%C3%A9%20x", nil, 3},
		{"GET", "/", http.Header{"X-Trace-Id": {"1"}}, 4},
		{"GET", "/", http.Header{"Trace": {"x-trace"}}, -1},
	} {
		p, q, _ := strings.Cut(tc.target, "?")
		got, err := s.Find(Request{Method: tc.method, Path: p, Query: q, Header: tc.header})
		if err != nil || got != tc.want {
			t.Errorf("%s %s: rule %d, %v; want %d", tc.method, tc.target, got, err, tc.want)
		}
	}
}

// Paths that servers read differently pass where the rules do not differ.
func TestAmbiguousPaths(t *testing.T) {
	fenced := compile(t, `[{"match":{"path":{"startsWith":"/public/"}},"transform":[]},{"response":{"statusCode":403}}]`)
	denied := compile(t, `[{"match":{"path":{"startsWith":"/admin"}},"response":{"statusCode":403}}]`)
	open := compile(t, `[{"transform":[]}]`)
	for _, p := range []string{
		"/public/..%2Fsecret", "/public/..%5Csecret", "/public/%2E%2E%2Fsecret", "/public/..;/secret", "/public/..%3Bx/secret",
		"/public/%252e%252e/secret", "/public/%252e%252e%252fsecret", "/public/%25252e%25252e/secret",
	} {
		c, err := Canonical(p)
		if err != nil {
			t.Fatal(err)
		}
		if i, err := fenced.Find(Request{Method: "GET", Path: c}); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("%s (%s): rule %d, %v", p, c, i, err)
		}
		if i, err := open.Find(Request{Method: "GET", Path: c}); err != nil || i != 0 {
			t.Errorf("%s without a path to match: rule %d, %v", p, i, err)
		}
	}
	for _, p := range []string{"/x/..%2Fadmin", "/%2Fadmin", "/;/admin", "/x/%252e%252e/admin"} {
		if i, err := denied.Find(Request{Method: "GET", Path: p}); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("%s: rule %d, %v", p, i, err)
		}
	}
	for _, p := range []string{"/public/@scope%2Fname", "/public/a;b", "/public/100%25"} {
		if i, err := fenced.Find(Request{Method: "GET", Path: p}); err != nil || i != 0 {
			t.Errorf("%s: rule %d, %v", p, i, err)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	for js, field := range map[string]string{
		`{}`: "transform: ",
		`{"transform":[],"forwardURL":"https://x"}`:                                                "transform: ",
		`{"transform":[{"headers":{"a b":"1"}}]}`:                                                  `transform[0].headers["a b"]: `,
		`{"transform":[{"headers":{"a":"s3cret\n"}}]}`:                                             `transform[0].headers["a"]: `,
		`{"transform":[{"headers":{"Host":"x"}}]}`:                                                 `transform[0].headers["Host"]: `,
		`{"transform":[{"headers":{"A":"1","a":"2"}}]}`:                                            `transform[0].headers[`,
		`{"transform":[{"headers":{"transfer-encoding":"x"}}]}`:                                    "transform[0].headers[",
		`{"forwardURL":"http://x"}`:                                                                "forwardURL: ",
		`{"forwardURL":"https://x/?q"}`:                                                            "forwardURL: ",
		`{"forwardURL":"https://x/#"}`:                                                             "forwardURL: ",
		`{"forwardURL":"https://u:p@x/"}`:                                                          "forwardURL: ",
		`{"forwardURL":"https://x/a/../b"}`:                                                        "forwardURL: ",
		`{"response":{}}`:                                                                          "response.statusCode: ",
		`{"response":{"statusCode":199}}`:                                                          "response.statusCode: ",
		`{"response":{"statusCode":200,"body":"x"}}`:                                               "response.contentType: ",
		`{"response":{"statusCode":204,"body":"x","contentType":"a/b"}}`:                           "response.body: ",
		`{"response":{"statusCode":200,"headers":{"Connection":"x"}}}`:                             `response.headers["Connection"]: `,
		`{"response":{"statusCode":200,"headers":{"x":"1","X":"2"}}}`:                              "response.headers[",
		`{"match":{"path":{}},"transform":[]}`:                                                     "match.path: ",
		`{"match":{"path":{"exact":"/","regex":"x"}},"transform":[]}`:                              "match.path: ",
		`{"match":{"path":{"regex":"("}},"transform":[]}`:                                          "match.path.regex: ",
		`{"match":{"path":{"regex":"(?=x)"}},"transform":[]}`:                                      "match.path.regex: ",
		`{"match":{"method":["GET "]},"transform":[]}`:                                             "match.method[0]: ",
		`{"match":{"headers":[{}]},"transform":[]}`:                                                "match.headers[0]: ",
		`{"match":{"queryString":[{"key":{"exact":"a"}},{"value":{"regex":"["}}]},"transform":[]}`: "match.queryString[1].value.regex: ",
	} {
		var in api.PolicyRule
		if err := json.Unmarshal([]byte(js), &in); err != nil {
			t.Fatal(err)
		}
		_, err := Compile(in)
		if err == nil || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("%s: %v, want %s…", js, err, field)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error has the secret: %v", js, err)
		}
	}
}

func TestForwardForm(t *testing.T) {
	for in, want := range map[string]string{
		"https://P.example.com":           "https://p.example.com",
		"https://p.example.com/":          "https://p.example.com",
		"https://p.example.com:443/a/b/":  "https://p.example.com/a/b",
		"https://p.example.com:8443/a%20": "https://p.example.com:8443/a%20",
		"https://[2001:DB8::1]:8443/":     "https://[2001:db8::1]:8443",
	} {
		r := compile(t, fmt.Sprintf(`[{"forwardURL":%q}]`, in))[0]
		if r.Audience() != want {
			t.Errorf("%s: %s, want %s", in, r.Audience(), want)
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	s := compile(t, `[{"transform":[{"headers":{"Authorization":"s3cret"}}]}]`)
	if out := fmt.Sprintf("%v %+v %#v %s", s, s, s, s[0].Headers); strings.Contains(out, "s3cret") {
		t.Error(out)
	}
}

// Whatever a request is like, a set fenced by a last rule never lets it pass
// unmatched.
func FuzzFind(f *testing.F) {
	s := compile(f, `[{"match":{"path":{"startsWith":"/v1/"},"method":["GET"],"queryString":[{"key":{"exact":"k"}}],"headers":[{"key":{"exact":"x"}}]},"transform":[]},{"response":{"statusCode":403}}]`)
	f.Add("GET", "/v1/../x", "k=1&=%", "X", "1")
	f.Fuzz(func(t *testing.T, method, path, query, key, val string) {
		c, err := Canonical(path)
		if err != nil {
			return
		}
		i, err := s.Find(Request{Method: method, Path: c, Query: query, Header: http.Header{key: {val}}})
		if err == nil && i != 0 && i != 1 || i == 0 && (method != "GET" || !strings.HasPrefix(c, "/v1/")) {
			t.Errorf("rule %d, %v", i, err)
		}
	})
}
