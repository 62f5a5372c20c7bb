// Package client is the Go SDK of Glovebox: it makes sandboxes on a server
// and runs commands, moves files and opens terminals in them.
//
// Every error that the server answered is, for errors.As, an *api.Error.
// Requests are repeated where that is safe (see Client). All types are safe
// for concurrent use unless they say otherwise.
package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/glovebox-dev/glovebox/api"
)

// Client speaks to one server.
//
// A request that failed on its way, or was answered 429 or 5xx, is repeated
// twice, after 400 and 800 ms or when the server's Retry-After asks for it.
// A request that makes something carries an Idempotency-Key, so that it is
// never carried out twice; one that is neither repeatable nor keyed is sent
// again only if the server said that it did nothing.
type Client struct {
	base    *url.URL
	token   string
	project string
	agent   string
	http    *http.Client
}

// Option changes a Client that New makes.
type Option func(*Client)

// WithProject names the project to work in, for a token that may use any.
// Without it that is the server's project "default".
func WithProject(name string) Option { return func(c *Client) { c.project = name } }

// WithHTTPClient replaces the HTTP client. It must not have a Timeout: logs
// are followed for as long as the command runs.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithUserAgent replaces the User-Agent header.
func WithUserAgent(agent string) Option { return func(c *Client) { c.agent = agent } }

// New returns a client of the server at baseURL, such as
// "http://127.0.0.1:7070". It does not connect yet. An empty token is for a
// server's local socket, which asks for none.
func New(baseURL, token string, opts ...Option) (*Client, error) {
	base, err := url.Parse(strings.TrimRight(baseURL, "/"))
	if err != nil {
		return nil, fmt.Errorf("server URL: %w", err)
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("server URL %q: want http://HOST:PORT or https://HOST", baseURL)
	}
	c := &Client{base: base, token: token, agent: "glovebox-go", http: newHTTPClient()}
	for _, o := range opts {
		o(c)
	}
	return c, nil
}

// newHTTPClient keeps more idle connections to the one host it talks to than
// the default of two, which would make bursts of commands reconnect.
func newHTTPClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 64, 64
	t.DisableCompression = true
	return &http.Client{Transport: t}
}

// URL is the server's address, without a slash at its end.
func (c *Client) URL() string { return c.base.String() }

// CloseIdle closes connections that are kept for later requests.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// request is one call of the API.
type request struct {
	method string
	path   []string // segments below the base, escaped when sent
	query  url.Values
	json   any       // the body as JSON; nil for none
	body   io.Reader // a body that is sent as it comes, and once
	header http.Header
	// repeatable: a second execution changes nothing more than the first.
	repeatable bool
	// key: the request carries an Idempotency-Key, which makes it repeatable.
	key bool
}

func (c *Client) url(r request) string {
	u := *c.base
	escaped := make([]string, len(r.path))
	for i, s := range r.path {
		escaped[i] = url.PathEscape(s)
	}
	query := url.Values{}
	for k, v := range r.query {
		query[k] = v
	}
	if c.project != "" {
		query.Set("projectId", c.project)
	}
	out := u.String() + "/" + strings.Join(escaped, "/")
	if len(query) > 0 {
		out += "?" + query.Encode()
	}
	return out
}

// newKey returns an Idempotency-Key.
func newKey() string { return rand.Text() }

// call sends r and decodes the answer into out, which may be nil.
func (c *Client) call(ctx context.Context, r request, out any) error {
	resp, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return decodeAnswer(resp, out)
}

// Server-wide calls.

// Status tells what the server runs.
func (c *Client) Status(ctx context.Context) (api.Status, error) {
	var out api.Status
	err := c.call(ctx, request{method: http.MethodGet, path: []string{"v1", "status"}, repeatable: true}, &out)
	return out, wrap(err, "status")
}

// DiskUse tells what takes up the server's disk. It takes a token for all
// projects, and so does Prune.
func (c *Client) DiskUse(ctx context.Context) (api.DiskUse, error) {
	var out api.DiskUse
	err := c.call(ctx, request{method: http.MethodGet, path: []string{"v1", "disk"}, repeatable: true}, &out)
	return out, wrap(err, "disk use")
}

// Prune removes what nothing needs from the server's disk.
func (c *Client) Prune(ctx context.Context, req api.PruneRequest) (api.PruneResponse, error) {
	var out api.PruneResponse
	err := c.call(ctx, request{method: http.MethodPost, path: []string{"v1", "prune"}, json: req, repeatable: true}, &out)
	return out, wrap(err, "prune")
}

// Health is what the server says about its readiness.
type Health struct {
	// Status is "ok" once sandboxes can be made, else "starting".
	Status string `json:"status"`
	// Reason says what is being waited for.
	Reason string `json:"reason,omitempty"`
	// Progress of that, from 0 to 1.
	Progress float64 `json:"progress,omitempty"`
}

// Ready tells whether sandboxes can be made.
func (h Health) Ready() bool { return h.Status == "ok" }

// Health asks whether the server is ready. It needs no token, and a server
// that is not ready is no error; one that cannot be reached is.
func (c *Client) Health(ctx context.Context) (Health, error) {
	var out Health
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url(request{path: []string{"healthz"}}), nil)
	if err != nil {
		return out, wrap(err, "health")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return out, wrap(err, "health")
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		return out, wrap(answerError(resp), "health")
	}
	return out, wrap(decodeAnswer(resp, &out), "health")
}

// wrap names the operation; nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
