// Package server is the HTTP side of Glovebox: routes, tokens, streams and
// the mapping of errors to statuses. It has no logic of its own: what a call
// does is the business of Control.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

// Defaults of Config.
const (
	defaultMaxBody     = 4 << 20
	defaultMaxRequests = 4096
	defaultGrace       = 10 * time.Second
)

// Limits that nothing changes.
const (
	maxHeaderBytes    = 64 << 10
	readHeaderTimeout = 20 * time.Second
	idleTimeout       = 2 * time.Minute
)

// Config of a Server. Control is required.
type Config struct {
	Control Control
	// Logger gets one line a request; nil is slog.Default().
	Logger *slog.Logger
	// Health is asked by /healthz; nil is always ready.
	Health func() Health
	// LocalToken, if not empty, is the token of requests that bring none: for a
	// listener that only this machine's root can reach.
	LocalToken string
	// PublicURL is where clients reach this server, such as
	// "https://glovebox.example.com"; "" is the address of each request.
	PublicURL string
	// Tokens publishes how the tokens of forwarded requests are verified; nil:
	// this server signs none.
	Tokens Tokens
	// IsPreviewHost tells the hosts whose requests go to Preview, whatever
	// their path; nil for none.
	IsPreviewHost func(host string) bool
	Preview       http.Handler
	// TLS, if not nil, has Serve speak TLS.
	TLS *tls.Config
	// MaxBody bounds a JSON body in bytes; 0 is 4 MiB.
	MaxBody int64
	// MaxRequests bounds the calls in progress, streams included; 0 is 4096.
	MaxRequests int
	// Grace is how long Serve waits at its end for calls in progress; 0 is 10 s.
	Grace time.Duration
}

// Tokens are documents in JSON.
type Tokens interface {
	JWKS() ([]byte, error)
	Configuration() ([]byte, error)
}

// Health is the body of /healthz.
type Health struct {
	Status   string  `json:"status"`             // HealthOK or HealthStarting
	Reason   string  `json:"reason,omitempty"`   // what is being waited for
	Progress float64 `json:"progress,omitempty"` // of that, 0 to 1
}

// Values of Health.Status.
const (
	HealthOK       = "ok"
	HealthStarting = "starting"
)

// Server answers the API. It is an http.Handler; Serve runs it on a listener.
type Server struct {
	control   Control
	log       *slog.Logger
	health    func() Health
	local     string // Config.LocalToken
	publicURL string
	isPreview func(string) bool
	preview   http.Handler
	tls       *tls.Config
	maxBody   int64
	grace     time.Duration
	router    *router
	tokens    Tokens

	previews previewGate
	slots    chan struct{} // one for each call in progress
	requests atomic.Uint64 // numbers the requests, for their ids
	prefix   string        // of the ids

	// life ends when the server shuts down: streams end with it.
	life      context.Context
	drain     context.CancelFunc
	terminals sync.WaitGroup // connections that net/http no longer knows
}

// New returns a Server.
func New(cfg Config) (*Server, error) {
	if cfg.Control == nil {
		return nil, errors.New("server: Config.Control is missing")
	}
	s := &Server{
		control: cfg.Control, log: cfg.Logger, health: cfg.Health, local: cfg.LocalToken, publicURL: cfg.PublicURL,
		isPreview: cfg.IsPreviewHost, preview: cfg.Preview, tls: cfg.TLS, tokens: cfg.Tokens,
		maxBody: cfg.MaxBody, grace: cfg.Grace,
		prefix: api.NewID("")[:8],
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.health == nil {
		s.health = func() Health { return Health{Status: HealthOK} }
	}
	if s.isPreview == nil || s.preview == nil {
		s.isPreview = func(string) bool { return false }
	}
	if s.maxBody <= 0 {
		s.maxBody = defaultMaxBody
	}
	if s.grace <= 0 {
		s.grace = defaultGrace
	}
	if cfg.MaxRequests <= 0 {
		cfg.MaxRequests = defaultMaxRequests
	}
	s.slots = make(chan struct{}, cfg.MaxRequests)
	s.router = newRouter(routes())
	s.life, s.drain = context.WithCancel(context.Background())
	return s, nil
}

// Serve answers requests on ln until ctx ends, then lets calls in progress
// finish for as long as Config.Grace, ends streams and terminals, and returns
// nil. It closes ln. A Server serves once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(s.tls != nil)
	protocols.SetUnencryptedHTTP2(s.tls == nil)
	srv := &http.Server{
		Handler:           s,
		Protocols:         &protocols,
		TLSConfig:         s.tls,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() {
		if s.tls != nil {
			served <- srv.ServeTLS(ln, "", "")
		} else {
			served <- srv.Serve(ln)
		}
	}()
	select {
	case err := <-served:
		s.drain()
		srv.Close()
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	s.drain()
	graceful, stop := context.WithTimeout(base, s.grace)
	defer stop()
	if err := srv.Shutdown(graceful); err != nil {
		s.log.Warn("connections cut at shutdown", "after", s.grace)
		srv.Close()
	}
	<-served //nolint:errcheck // says that it was shut down
	s.awaitTerminals(graceful, cancel)
	return nil
}

// awaitTerminals lets terminals say goodbye until ctx ends; then cut ends
// every connection that was handed over, which nothing else does.
func (s *Server) awaitTerminals(ctx context.Context, cut context.CancelFunc) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.terminals.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	cut()
	<-done
}
