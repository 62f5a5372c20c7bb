package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

// responseWriter remembers what was sent.
type responseWriter struct {
	http.ResponseWriter
	wrote  bool
	status int
	bytes  int64
	failed bool // the client took no more
}

func (w *responseWriter) WriteHeader(status int) {
	if !w.wrote {
		w.wrote, w.status = true, status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseWriter) Write(p []byte) (int, error) {
	if !w.wrote {
		w.wrote, w.status = true, http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	w.failed = w.failed || err != nil
	return n, err
}

// Unwrap lets http.ResponseController and WebSocket upgrades through.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.isPreview(r.Host) {
		s.servePreview(w, r)
		return
	}
	id := fmt.Sprintf("req_%s%06d", s.prefix, s.requests.Add(1))
	c := &call{s: s, w: &responseWriter{ResponseWriter: w}, r: r, id: id, log: s.log.With("request", id)}
	c.w.Header().Set("X-Request-Id", id)
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		c.fail(&api.Error{Code: api.CodeRateLimited, RetryAfter: time.Second,
			Message: fmt.Sprintf("%d requests are in progress, the most this server takes; repeat it later", cap(s.slots))})
		return
	}
	c.serve()
}

// serve finds the route, checks the token and runs the handler.
func (c *call) serve() {
	rt, params, methods := c.s.router.find(c.r.Method, c.r.URL)
	start := time.Now()
	defer c.logAccess(start)
	defer c.recover(rt)
	if rt == nil {
		c.noRoute(methods)
		return
	}
	c.params = params
	if !rt.open {
		if err := c.authenticate(); err != nil {
			c.fail(err)
			return
		}
	}
	if err := rt.handle(c); err != nil {
		c.fail(err)
	}
}

// noRoute answers a request that no handler takes.
func (c *call) noRoute(methods []string) {
	switch {
	case len(methods) == 0:
		c.fail(api.Errorf(api.CodeNotFound, "there is no %.200q in this API; check the path", c.r.URL.Path))
	case c.r.Method == http.MethodOptions:
		c.w.Header().Set("Allow", allowed(methods))
		c.w.WriteHeader(http.StatusNoContent)
	default:
		allow := allowed(methods)
		c.w.Header().Set("Allow", allow)
		c.writeJSON(http.StatusMethodNotAllowed, api.ErrorResponse{Error: *api.BadRequest("method %.20s does not work here; use one of %s", c.r.Method, allow)})
	}
}

// authenticate checks the bearer token.
func (c *call) authenticate() error {
	scheme, token, _ := strings.Cut(c.r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if token == "" && c.s.local != "" {
		scheme, token = "Bearer", c.s.local
	}
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return api.Errorf(api.CodeUnauthorized, "a token is missing; send the header Authorization: Bearer TOKEN, with a token of `glovebox token create`")
	}
	var err error
	c.identity, err = c.s.control.Authenticate(c.r.Context(), token)
	return err
}

// recover keeps a panic of one call from ending the others. After the panic
// of a call that starts something nobody knows whether it did: the answer is
// one that clients do not repeat by themselves.
func (c *call) recover(rt *route) {
	p := recover()
	if p == nil {
		return
	}
	if p != http.ErrAbortHandler { //nolint:errorlint // panics are not wrapped
		c.log.Error("panic in a handler", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
	if c.w.wrote || p == http.ErrAbortHandler { //nolint:errorlint // panics are not wrapped
		panic(http.ErrAbortHandler)
	}
	if rt != nil && rt.starts {
		c.writeError(api.Errorf(api.CodeConflict, "the server failed in the middle of this call; look whether it took effect before you repeat it (%s in the server's log)", c.id))
		return
	}
	c.writeError(api.Errorf(api.CodeInternal, "the server failed at this request; repeat it, and if it fails again look for %s in its log", c.id))
}

// logAccess writes one line: no query, as it may hold a token, and no bodies.
func (c *call) logAccess(start time.Time) {
	level := slog.LevelInfo
	if c.r.Method == http.MethodGet || c.r.Method == http.MethodHead {
		level = slog.LevelDebug
	}
	c.log.LogAttrs(context.WithoutCancel(c.r.Context()), level, "request",
		slog.String("method", c.r.Method), slog.String("path", c.r.URL.Path),
		slog.Int("status", c.w.status), slog.Int64("bytes", c.w.bytes),
		slog.Duration("took", time.Since(start)), slog.String("remote", c.r.RemoteAddr))
}

func (c *call) healthz() error {
	h := c.s.health()
	status := http.StatusOK
	if h.Status != HealthOK {
		status = http.StatusServiceUnavailable
		c.w.Header().Set("Retry-After", "1")
	}
	c.w.Header().Set("Cache-Control", "no-store")
	c.writeJSON(status, h)
	return nil
}

// alive answers what the published CLI asks before it opens a terminal.
func (c *call) alive() error {
	return c.ok(Health{Status: HealthOK}, nil)
}

func (c *call) status() error {
	return c.ok(c.s.control.Status(c.r.Context()), nil)
}
