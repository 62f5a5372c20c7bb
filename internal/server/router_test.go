package server

import (
	"net/url"
	"testing"
)

func TestRouterFind(t *testing.T) {
	rt := newRouter([]route{
		{method: "GET", path: "/v2/sandboxes"},
		{method: "POST", path: "/v2/sandboxes"},
		{method: "GET", path: "/v2/sandboxes/{name}"},
		{method: "DELETE", path: "/v2/sandboxes/{name}"},
		{method: "POST", path: "/v2/sandboxes/{name}/fork"},
		{method: "POST", path: "/v2/sandboxes/drives/{drive}"},
		{method: "GET", path: "/v2/sandboxes/sessions"},
		{method: "GET", path: "/v2/sandboxes/sessions/{session}"},
	})
	for _, tt := range []struct {
		method, path string
		want         string // the route's path; "" for none
		param        string // name=value of one parameter
		allow        string // where there is no route
	}{
		{"GET", "/v2/sandboxes", "/v2/sandboxes", "", ""},
		{"HEAD", "/v2/sandboxes", "/v2/sandboxes", "", ""},
		{"GET", "/v2/sandboxes/", "/v2/sandboxes", "", ""},
		{"GET", "/api/v2/sandboxes", "/v2/sandboxes", "", ""},
		{"GET", "/api/v2/sandboxes/a", "/v2/sandboxes/{name}", "name=a", ""},
		{"GET", "/v2/sandboxes/a%2Fb", "/v2/sandboxes/{name}", "name=a/b", ""},
		{"GET", "/v2/sandboxes/caf%C3%A9", "/v2/sandboxes/{name}", "name=café", ""},
		{"GET", "/v2/sandboxes/sessions", "/v2/sandboxes/sessions", "", ""},
		{"GET", "/v2/sandboxes/sessions/x", "/v2/sandboxes/sessions/{session}", "session=x", ""},
		{"POST", "/v2/sandboxes/drives/fork", "/v2/sandboxes/drives/{drive}", "drive=fork", ""},
		{"POST", "/v2/sandboxes/a/fork", "/v2/sandboxes/{name}/fork", "name=a", ""},
		{"PUT", "/v2/sandboxes", "", "", "GET, HEAD, OPTIONS, POST"},
		{"POST", "/v2/sandboxes/a", "", "", "DELETE, GET, HEAD, OPTIONS"},
		{"DELETE", "/v2/sandboxes/sessions", "", "", "GET, HEAD, OPTIONS"},
		{"GET", "/", "", "", ""},
		{"GET", "/v2", "", "", ""},
		{"GET", "/v2//sandboxes", "", "", ""},
		{"GET", "/apiv2/sandboxes", "", "", ""},
		{"GET", "/v2/sandboxes/a/b/c", "", "", ""},
	} {
		u, err := url.ParseRequestURI(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		r, params, methods := rt.find(tt.method, u)
		got := ""
		if r != nil {
			got = r.path
		}
		if got != tt.want {
			t.Errorf("%s %s: route %q, want %q", tt.method, tt.path, got, tt.want)
		}
		for name, value := range params {
			if name+"="+value != tt.param {
				t.Errorf("%s %s: parameter %s=%s, want %s", tt.method, tt.path, name, value, tt.param)
			}
		}
		if allow := ""; methods != nil {
			if allow = allowed(methods); allow != tt.allow {
				t.Errorf("%s %s: Allow %q, want %q", tt.method, tt.path, allow, tt.allow)
			}
		} else if tt.allow != "" {
			t.Errorf("%s %s: no methods, want %q", tt.method, tt.path, tt.allow)
		}
	}
}

func FuzzRouterFind(f *testing.F) {
	rt := newRouter([]route{{method: "GET", path: "/v2/sandboxes/{name}"}})
	f.Add("/v2/sandboxes/a%2")
	f.Add("*")
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		if r, params, _ := rt.find("GET", u); r != nil && params["name"] == "" {
			t.Errorf("%q: matched without a name", path)
		}
	})
}
