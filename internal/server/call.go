package server

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/api"
)

// call is one request on its way through the server.
type call struct {
	s        *Server
	w        *responseWriter
	r        *http.Request
	id       string // of the request, in logs and in X-Request-Id
	log      *slog.Logger
	params   map[string]string
	identity api.Identity
}

func (c *call) param(name string) string { return c.params[name] }

// idempotencyKey is "" where the client sent none.
func (c *call) idempotencyKey() string { return c.r.Header.Get("Idempotency-Key") }

// named returns the project that the token decides, or that the request names
// in its query or, as bodyProject, in its body.
func (c *call) named(bodyProject string) (Project, error) {
	name := c.projectName(bodyProject)
	if name == "" {
		name = defaultProject
	}
	return c.s.control.Project(c.r.Context(), name)
}

// defaultProject is where a token that may use any project works if the
// request names none.
const defaultProject = "default"

func (c *call) projectName(bodyProject string) string {
	if c.identity.Project != "" {
		return c.identity.Project
	}
	q := c.r.URL.Query()
	for _, name := range []string{q.Get("projectId"), q.Get("project"), bodyProject} {
		if name != "" {
			return name
		}
	}
	return ""
}

// session returns the id of the session in the path and the project to look
// for it in.
func (c *call) session() (Project, string, error) { return c.owned(c.param("session")) }

// owned returns the project to look for a session or snapshot in. Where
// neither the token nor the request names one, that is the object's own: only
// a token for all projects gets there.
func (c *call) owned(id string) (Project, string, error) {
	name := c.projectName("")
	if name == "" {
		var err error
		if name, err = c.s.control.ProjectOf(c.r.Context(), id); err != nil {
			return nil, "", err
		}
	}
	p, err := c.s.control.Project(c.r.Context(), name)
	return p, id, err
}

// decode reads the JSON body into v. The content type does not matter, and an
// absent body is read as {}.
func (c *call) decode(v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, c.s.maxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return api.BadRequest("body: more than %d bytes of JSON; send files with fs/write", c.s.maxBody)
		}
		return api.BadRequest("body: cut off after %d bytes; send it again", len(body))
	}
	if !utf8.Valid(body) {
		return api.BadRequest("body: not valid UTF-8; encode the JSON as UTF-8")
	}
	if trimmed := bytes.TrimSpace(body); len(trimmed) > 0 && trimmed[0] != '{' && !isSyntaxError(trimmed) {
		return api.BadRequest("body: must be a JSON object")
	}
	return api.Unmarshal(body, v)
}

// isSyntaxError leaves the complaint about what is no JSON at all to the
// decoder, which says where.
func isSyntaxError(b []byte) bool {
	return !bytes.ContainsAny(b[:1], `["-0123456789tfn`)
}

// boolQuery reads a query parameter that is true, false or absent.
func (c *call) boolQuery(name string) (bool, error) {
	text := c.r.URL.Query().Get(name)
	if text == "" {
		return false, nil
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		return false, api.BadRequest("query %s: %.40q must be true or false", name, text)
	}
	return v, nil
}

// ok answers 200 with v, or with the error.
func (c *call) ok(v any, err error) error {
	if err != nil {
		return err
	}
	c.writeJSON(http.StatusOK, v)
	return nil
}

func (c *call) writeJSON(status int, v any) {
	body, err := appendJSON(nil, v)
	if err != nil {
		// Our own types; a policy's marshaller is the only one that can fail.
		c.log.Error("encode answer", "error", err)
		status, body = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"the answer could not be encoded"}}`+"\n")
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(status)
	// An error here means that the client is gone, which is its right.
	_, _ = c.w.Write(body)
}
