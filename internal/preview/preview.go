package preview

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

// Errors of Config.Resolve.
var (
	// ErrUnknownHost: no sandbox has this host name. 404.
	ErrUnknownHost = errors.New("no sandbox has this address")
	// ErrStopped: its sandbox is there but does not run. 410.
	ErrStopped = errors.New("the sandbox is stopped")
)

// maxHeaderBytes is what a request's header may hold.
const maxHeaderBytes = 64 << 10

// Configure sets what a server of previews needs: HTTP/1.1 and HTTP/2, that
// without TLS too, large headers, and no limit on the time that bodies take.
func Configure(s *http.Server) {
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	s.MaxHeaderBytes = maxHeaderBytes
	s.ReadHeaderTimeout = 30 * time.Second
	s.IdleTimeout = 2 * time.Minute
	s.ReadTimeout, s.WriteTimeout = 0, 0
}

// Target is one port of one running session.
type Target struct {
	// Key is unique to the session and port: connections are kept and used
	// again for requests with the same key.
	Key string
	// Sandbox is the name of the sandbox, for messages.
	Sandbox string
	// Port inside the sandbox.
	Port int
	// Admits tells whether a token opens the preview; nil: it is public.
	Admits func(token string) bool
	// Dial connects to the port. Where nothing listens its error is
	// syscall.ECONNREFUSED.
	Dial func(ctx context.Context) (net.Conn, error)
	// Done is closed when the session ends; its kept connections are closed
	// then. It must not be nil, unless Wake is set.
	Done <-chan struct{}
	// Wake, where not nil, starts the sandbox, which is stopped, and returns
	// the target that there is then. It is called once the request is admitted.
	Wake func(ctx context.Context) (Target, error)
}

// Config describes a Handler.
type Config struct {
	Hosts Hosts
	// Resolve finds the target of a subdomain. Its errors are ErrUnknownHost
	// and ErrStopped, possibly wrapped with the sandbox's name; anything
	// else is answered as an internal error.
	Resolve func(ctx context.Context, subdomain string) (Target, error)
	// Logger; nil means slog.Default.
	Logger *slog.Logger
}

// Handler is the reverse proxy. Safe for concurrent use. Close ends it.
type Handler struct {
	cfg   Config
	log   *slog.Logger
	proxy *httputil.ReverseProxy
	pool  *pool
}

// New returns a Handler.
func New(cfg Config) *Handler {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	h := &Handler{cfg: cfg, log: cfg.Logger, pool: newPool()}
	h.proxy = &httputil.ReverseProxy{
		Rewrite:       rewrite,
		Transport:     h.pool,
		FlushInterval: -1, // every chunk at once
		ErrorHandler:  h.fail,
		BufferPool:    copyBuffers{},
		ErrorLog:      slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	return h
}

// Close closes the connections that are kept; requests in progress go on.
func (h *Handler) Close() { h.pool.close() }

type targetKey struct{}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sub, ok := h.cfg.Hosts.Subdomain(r.Host)
	if !ok {
		h.fail(w, r, ErrUnknownHost)
		return
	}
	t, err := h.cfg.Resolve(r.Context(), sub)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if t.Admits != nil && !admit(w, r, t) {
		return
	}
	if t.Wake != nil {
		if t, err = t.Wake(r.Context()); err == nil && t.Wake != nil {
			err = ErrStopped // it stopped again meanwhile
		}
		if err != nil {
			h.fail(w, r, err)
			return
		}
	}
	if r.Body != nil && r.Body != http.NoBody {
		// The app may answer before it has read the whole body; without this
		// an HTTP/1 server would first read the rest. HTTP/2 does it anyway.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	w.Header()["Content-Type"] = nil // where the app gives none, none is guessed
	h.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), targetKey{}, &t)))
}

func target(ctx context.Context) *Target {
	t, _ := ctx.Value(targetKey{}).(*Target)
	return t
}

// appHost stands for the target in URLs; it is dialled by Target.Dial and
// looked up nowhere.
const appHost = "sandbox"

// rewrite makes the request to the app: the same one, with the public host
// kept and the usual headers about the way it came.
func rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host = "http", appHost
	p.Out.Host = p.In.Host
	p.Out.Trailer = p.In.Trailer // filled in when the body has been read
	p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
	p.SetXForwarded()
	if p.In.TLS == nil && forwardedHTTPS(p.In) {
		p.Out.Header.Set("X-Forwarded-Proto", "https")
	}
	keepRawPath(p)
}

// forwardedHTTPS: a proxy in front of this server ended TLS.
func forwardedHTTPS(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// keepRawPath sends path and query on byte for byte; net/url would write
// them anew and change some encodings on the way. (An opaque URL cannot
// begin with two slashes; such a path goes the common way.)
func keepRawPath(p *httputil.ProxyRequest) {
	path, query, has := strings.Cut(p.In.RequestURI, "?")
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return
	}
	p.Out.URL.Opaque = path
	p.Out.URL.RawQuery, p.Out.URL.ForceQuery = query, has
}

// fail answers for the app. It is called before anything was written.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client has gone
	}
	t := target(r.Context())
	var refused *api.Error
	switch {
	case errors.Is(err, ErrUnknownHost):
		writeError(w, r, http.StatusNotFound, api.CodeNotFound, "No such preview",
			fmt.Sprintf("No sandbox has a port at %s. Check the address, and that the port is in the sandbox's list of ports.", clip(r.Host)))
	case errors.Is(err, ErrStopped):
		writeError(w, r, http.StatusGone, api.CodeSandboxStopped, "Sandbox stopped",
			fmt.Sprintf("The sandbox behind %s does not run. Start it again, then reload.", clip(r.Host)))
	case t == nil && errors.As(err, &refused):
		w.Header().Set("Retry-After", "5")
		writeError(w, r, http.StatusServiceUnavailable, refused.Code, "Sandbox could not be started", refused.Message)
	case t == nil:
		h.log.Error("preview failed", "host", r.Host, "err", err)
		writeError(w, r, http.StatusInternalServerError, api.CodeInternal, "Preview failed", "The preview could not be looked up. The server's log has the cause.")
	case ended(t.Done):
		writeError(w, r, http.StatusGone, api.CodeSandboxStopped, "Sandbox stopped",
			fmt.Sprintf("The sandbox %q stopped while it was answering. Start it again, then reload.", t.Sandbox))
	case errors.Is(err, syscall.ECONNREFUSED):
		writeError(w, r, http.StatusBadGateway, api.CodeSandboxNotListening, "Nothing listens on port "+strconv.Itoa(t.Port),
			fmt.Sprintf("Nothing listens on port %d of the sandbox %q yet. Start a server there, then reload.", t.Port, t.Sandbox))
	default:
		h.log.Debug("preview request failed", "sandbox", t.Sandbox, "port", t.Port, "err", err)
		writeError(w, r, http.StatusBadGateway, api.CodeSandboxNotListening, "No answer from port "+strconv.Itoa(t.Port),
			fmt.Sprintf("What listens on port %d of the sandbox %q gave no valid HTTP answer: %v.", t.Port, t.Sandbox, err))
	}
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func clip(s string) string {
	const most = 140
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
