package api_test

import (
	"encoding/json"
	"errors"
	"math"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/glovebox-dev/glovebox/api"
)

func wantBad(t *testing.T, err error, parts ...string) {
	t.Helper()
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Code != api.CodeBadRequest && e.Code != api.CodeTimeoutInvalid {
		t.Fatalf("error %v is no bad request", err)
	}
	for _, p := range parts {
		if !strings.Contains(e.Message, p) {
			t.Fatalf("%q does not hold %q", e.Message, p)
		}
	}
}

func TestIntegers(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "5": 5, "-1": -1, "5.0": 5, "1e12": 1e12, "1E3": 1000, "9007199254740991": 1<<53 - 1} {
		var r api.ExtendTimeoutRequest
		if err := api.Unmarshal([]byte(`{"duration":`+text+`}`), &r); err != nil {
			t.Errorf("%s: %v", text, err)
		} else if v, set := r.Duration.Get(); v != want || !set {
			t.Errorf("%s: %d, %v", text, v, set)
		}
	}
	for _, text := range []string{"null", "0.5", "1e30", "-1e30", "9007199254740992", `"5"`, `"5m"`, "true", "[]", "{}", `"NaN"`} {
		var r api.ExtendTimeoutRequest
		t.Run(text, func(t *testing.T) {
			wantBad(t, api.Unmarshal([]byte(`{"duration":`+text+`}`), &r), "field duration", "an integer", text[:1])
		})
	}
}

// Messages name the path of the field, however deep it is.
func TestDecodingNamesTheField(t *testing.T) {
	for body, parts := range map[string][]string{
		`{"resources":{"vcpus":null}}`:             {"resources.vcpus", "integer"},
		`{"env":[]}`:                               {"field env", "object"},
		`{"persistent":"yes"}`:                     {"persistent", "true or false"},
		`{"ports":[1,"x"]}`:                        {"ports", "integer"},
		`{"ports":5}`:                              {"ports", "array"},
		`{"keepLastSnapshots":{"count":1.5}}`:      {"keepLastSnapshots.count"},
		`{"source":{"depth":"1"}}`:                 {"source.depth"},
		`{"networkPolicy":7}`:                      {"networkPolicy"},
		`{"networkPolicy":{"allow":{"a.test":5}}}`: {"networkPolicy.allow", "a.test", "array"},
		`{"networkPolicy":{"allow":{"a.test":[{"response":{"statusCode":"x"}}]}}}`: {"networkPolicy.allow", "a.test", "statusCode", "integer"},
		`{"networkPolicy":{"allow":{"a.test":[],"a.test":[]}}}`:                    {"networkPolicy.allow", "twice"},
		`{"networkPolicy":{"allow":[1]}}`:                                          {"allow", "string"},
		`{"networkPolicy":{"subnets":[]}}`:                                         {"subnets", "object"},
		`{"a":`:                                                                    {"body", "JSON"},
		`[]`:                                                                       {"body", "object"},
		`{} {}`:                                                                    {"body", "JSON"},
	} {
		t.Run(body, func(t *testing.T) {
			var r api.CreateSandboxRequest
			wantBad(t, api.Unmarshal([]byte(body), &r), parts...)
		})
	}
	var u api.UpdateSandboxRequest
	wantBad(t, api.Unmarshal([]byte(`{"keepLastSnapshots":{"count":"x"}}`), &u), "keepLastSnapshots", "count", "integer")
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	var r api.CreateSandboxRequest
	if err := api.Unmarshal([]byte(`{"__interactive":true,"__other":{"x":[1]},"name":"a"}`), &r); err != nil || !r.Interactive || r.Name != "a" {
		t.Errorf("%+v, %v", r, err)
	}
	if err := api.Unmarshal(nil, &r); err != nil {
		t.Error(err)
	}
}

func TestNullable(t *testing.T) {
	for body, want := range map[string]api.Nullable[api.KeepLastSnapshots]{
		`{}`:                                {},
		`{"keepLastSnapshots":null}`:        {Set: true, Null: true},
		`{"keepLastSnapshots":{"count":2}}`: api.ValueOf(api.KeepLastSnapshots{Count: api.IntOf(2)}),
	} {
		var r api.UpdateSandboxRequest
		if err := api.Unmarshal([]byte(body), &r); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(r.KeepLastSnapshots, want) {
			t.Errorf("%s: %+v", body, r.KeepLastSnapshots)
		}
		if b, err := json.Marshal(r); string(b) != body || err != nil {
			t.Errorf("%s became %s, %v", body, b, err)
		}
	}
}

// A policy keeps its meaning and order when it is written and read again.
func TestPolicyRoundTrip(t *testing.T) {
	for in, out := range map[string]string{
		`"deny-all"`:                `{"mode":"deny-all"}`,
		`{"mode":"allow-all"}`:      ``,
		`{}`:                        ``,
		`{"allow":[]}`:              ``,
		`{"allow":["b","a"]}`:       ``,
		`{"allow":{"b":[],"a":[]}}`: `{"allow":["b","a"]}`,
		`{"allow":{"z":[{"match":{"path":{"startsWith":"/v1"}},"transform":[{"headers":{"k":"v"}}]}],"*":[]},"subnets":{"allow":["10.0.0.0/8"]}}`: ``,
		`{"allow":{"a":[{"transform":[]},{"forwardURL":"https://p"},{"response":{"statusCode":403,"body":"","contentType":"text/plain"}}]}}`:      ``,
	} {
		if out == "" {
			out = in
		}
		var p api.NetworkPolicy
		if err := json.Unmarshal([]byte(in), &p); err != nil {
			t.Fatal(in, err)
		}
		b, err := json.Marshal(p)
		if string(b) != out || err != nil {
			t.Errorf("%s became %s, %v", in, b, err)
		}
	}
}

func TestPolicyView(t *testing.T) {
	var p api.NetworkPolicy
	in := `{"allow":{"a.test":[{"match":{"method":["GET"]},"transform":[{"headers":{"B":"secret","A":"secret"}}]},{"forwardURL":"https://p"}],"*":[],"c.test":[{"response":{"statusCode":403}}]},"subnets":{"allow":["1.0.0.0/8"],"deny":["2.0.0.0/8"]}}`
	if err := json.Unmarshal([]byte(in), &p); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(p.View())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"mode":"custom","allowedDomains":["a.test","*","c.test"],"allowedCIDRs":["1.0.0.0/8"],"deniedCIDRs":["2.0.0.0/8"],` +
		`"injectionRules":[{"domain":"a.test","headerNames":["A","B"],"match":{"method":["GET"]}}],` +
		`"forwardRules":[{"domain":"a.test","forwardURL":"https://p"}],"responseRules":[{"domain":"c.test","response":{"statusCode":403}}]}`
	if d := cmp.Diff(want, string(b)); d != "" {
		t.Error(d)
	}
	if v := (*api.NetworkPolicy)(nil).View(); v.Mode != "allow-all" {
		t.Error(v)
	}
}

func TestQueries(t *testing.T) {
	q, err := api.ParseListSandboxes(url.Values{})
	if err != nil || !reflect.DeepEqual(q, api.ListSandboxesQuery{Page: api.Page{Limit: 20, SortOrder: "desc"}, SortBy: "createdAt"}) {
		t.Errorf("%+v, %v", q, err)
	}
	q, err = api.ParseListSandboxes(url.Values{"limit": {"50"}, "sortBy": {"name"}, "sortOrder": {"asc"}, "namePrefix": {"x"}, "status": {"running"}, "tags": {"k:v:w"}, "cursor": {"c"}})
	if err != nil || q.Limit != 50 || q.Tags["k"] != "v:w" || q.Status != "running" || q.Cursor != "c" {
		t.Errorf("%+v, %v", q, err)
	}
	for k, values := range map[string][]string{
		"limit": {"0", "51", "-1", "x", "", "1.5"}, "sortBy": {"size"}, "sortOrder": {"up", ""}, "status": {"on"}, "tags": {"k", ":v"},
	} {
		for _, v := range values {
			_, err := api.ParseListSandboxes(url.Values{k: {v}})
			wantBad(t, err, k)
		}
	}
	_, err = api.ParseListSandboxes(url.Values{"tags": {"k:a", "k:b"}})
	wantBad(t, err, "tags")
	if q, err := api.ParseListSessions(url.Values{"name": {"n"}}); err != nil || q.Name != "n" || q.SortOrder != "desc" {
		t.Errorf("%+v, %v", q, err)
	}
}

func TestRepository(t *testing.T) {
	for u, want := range map[string]string{
		"https://h/a/b.git": "b", "https://h/a/b": "b", "https://h/a/b/": "b", "https://h/b.git?x=y": "b", "https://h/%2e%2e": "", "https://h/": "", "https://h": "", "https://h/.git": "",
	} {
		src := api.Source{Type: "git", URL: u}
		if got := src.Repository(); got != want {
			t.Errorf("%s: %q, want %q", u, got, want)
		}
		if want == "" {
			wantBad(t, src.Validate(), "source.url")
		}
	}
	for _, u := range []string{"", "x", "ssh://h/r", "git@h:r", "https://", "https://h/a\nb", "ext::sh -c x"} {
		wantBad(t, (&api.Source{Type: "git", URL: u}).Validate(), "source.url")
	}
	wantBad(t, (&api.Source{Type: "git", URL: "https://h/r", Password: "a\nb"}).Validate(), "source.password")
}

func TestMilliseconds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ms := rapid.Int64Range(0, math.MaxInt64).Draw(r, "ms")
		d := api.Milliseconds(ms)
		if d < 0 || ms < 1e12 && d != time.Duration(ms)*time.Millisecond || ms >= 1e12 && d < 1e12*time.Millisecond {
			r.Fatal(d)
		}
	})
}

func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := api.NewID(api.SessionPrefix)
		if seen[id] || len(id) < len("se_")+20 || id != strings.ToLower(id) {
			t.Fatal(id)
		}
		seen[id] = true
		if err := api.ValidateName("name", api.NewName()); err != nil {
			t.Fatal(err)
		}
		if s := api.NewSubdomain(); len(s) > 63 || strings.Contains(s, "_") {
			t.Fatal(s)
		}
	}
}

func TestMessagesAreShort(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, err := range []error{api.ValidateName("name", long+" "), api.ValidateTags(map[string]string{long: ""}), api.NotFound("sandbox", long),
		api.DefaultLimits().ValidateEnv(map[string]string{long + "=": ""}), (&api.Source{Type: long}).Validate()} {
		if err == nil || len(err.Error()) > 500 {
			t.Errorf("%.100v", err)
		}
	}
}
