package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// handler answers one call. An error that it returns before anything was
// written becomes the answer; after that it ends the connection.
type handler func(*call) error

// route is one method on one path. A segment in braces takes any value.
type route struct {
	method string
	path   string
	handle handler
	// starts: the call makes something that a second call would make again,
	// so that a failure of unknown outcome must not look repeatable.
	starts bool
	// open: no token is asked for.
	open bool
}

// router finds routes. The standard library's mux cannot be used: it takes
// POST /v2/sandboxes/drives/{name} and POST /v2/sandboxes/{name}/fork for a
// conflict, where a literal that comes first shall win.
type router struct {
	routes []compiled
}

type compiled struct {
	route
	segments []string
}

func newRouter(routes []route) *router {
	rt := &router{routes: make([]compiled, len(routes))}
	for i, r := range routes {
		rt.routes[i] = compiled{route: r, segments: strings.Split(r.path[1:], "/")}
	}
	// Of two patterns that match, the one whose literal comes first wins.
	slices.SortStableFunc(rt.routes, func(a, b compiled) int {
		return strings.Compare(precedence(a.segments), precedence(b.segments))
	})
	return rt
}

// precedence sorts literals before parameters, segment by segment.
func precedence(segments []string) string {
	var b strings.Builder
	for _, s := range segments {
		if isParam(s) {
			b.WriteByte('1')
		} else {
			b.WriteByte('0')
		}
	}
	return b.String()
}

func isParam(segment string) bool { return strings.HasPrefix(segment, "{") }

// find returns the route of a request and the values of its parameters. A nil
// route with methods means that the path exists for those; with none that
// there is no such path.
func (rt *router) find(method string, u *url.URL) (r *route, params map[string]string, methods []string) {
	segments, ok := splitPath(u)
	if !ok {
		return nil, nil, nil
	}
	var matched []string // the pattern that won; others' methods do not count
	for i := range rt.routes {
		c := &rt.routes[i]
		if !c.matches(segments) || (matched != nil && !slices.Equal(matched, c.segments)) {
			continue
		}
		matched = c.segments
		methods = append(methods, c.method)
		if c.method == method || (method == http.MethodHead && c.method == http.MethodGet) {
			return &c.route, c.params(segments), nil
		}
	}
	return nil, nil, methods
}

// splitPath cuts a path at its slashes before it undoes the escapes, so that
// a name may hold any character, and drops the prefix /api.
func splitPath(u *url.URL) ([]string, bool) {
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	if rest, ok := strings.CutPrefix(path, "/api/"); ok {
		path = "/" + rest
	}
	if !strings.HasPrefix(path, "/") {
		return nil, false
	}
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		plain, err := url.PathUnescape(s)
		if err != nil || plain == "" {
			return nil, false
		}
		segments[i] = plain
	}
	return segments, true
}

func (c *compiled) matches(segments []string) bool {
	if len(segments) != len(c.segments) {
		return false
	}
	for i, s := range c.segments {
		if !isParam(s) && s != segments[i] {
			return false
		}
	}
	return true
}

func (c *compiled) params(segments []string) map[string]string {
	params := make(map[string]string, 2)
	for i, s := range c.segments {
		if isParam(s) {
			params[strings.Trim(s, "{}")] = segments[i]
		}
	}
	return params
}

// allowed is the value of an Allow header.
func allowed(methods []string) string {
	out := slices.Clone(methods)
	if slices.Contains(out, http.MethodGet) {
		out = append(out, http.MethodHead)
	}
	out = append(out, http.MethodOptions)
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ", ")
}
