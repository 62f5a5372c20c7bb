// Package intercept is what a sandbox's HTTP connections go through where the
// network policy has something to say about single requests: it opens TLS by
// a certificate of the sandbox's own CA, checks that each request is for the
// name that the connection was allowed for, applies the policy's rules, and
// carries requests and answers as streams.
//
// Where a connection leads to is the caller's business: the package dials by
// the functions it is given, which judge every address.
package intercept

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

const (
	headerTimeout = 60 * time.Second // for the handshake and for a request's head
	maxHeader     = 1 << 20          // bytes of a head, either way
	maxStreams    = 250              // of an HTTP/2 connection of the guest
	// maxUpstream is how many connections one of the guest's may need, which
	// is more than one where only the guest speaks HTTP/2.
	maxUpstream = 32
)

// Config of a Proxy. All of it but Roots and Token is required.
type Config struct {
	CA *CA
	// Policy returns the one in force; its rules apply to later requests.
	Policy func() egress.Policy
	// Recheck judges a plain connection to addr for the name of a request,
	// and records a refusal.
	Recheck func(addr netip.AddrPort, name string) egress.Verdict
	// Record keeps a decision about a request for the user.
	Record func(egress.Decision, egress.Verdict) egress.Verdict
	// DialForward connects to the host of a rule's forwardURL.
	DialForward func(ctx context.Context, host string, port uint16) (net.Conn, error)
	// Roots verify the destinations and the proxies of forwardURL; nil means
	// those of the system.
	Roots *x509.CertPool
	// Token returns a signed one that tells audience which sandbox asks; nil:
	// nothing can be forwarded.
	Token  func(audience string) (string, error)
	Logger *slog.Logger
}

// Conn is a connection of the guest to be served.
type Conn struct {
	// Guest is the guest's side, from its first byte. Its Close and deadlines
	// must end reads and writes.
	Guest net.Conn
	Dst   netip.AddrPort
	// Server is the TLS server name (normalised), "" for a plain connection.
	Server string
	// Names (normalised) that the address was given out for: with Strict
	// those that it is allowed for, and every request must be for one of
	// them. Without, requests to others pass.
	Names  []string
	Strict bool
	// Dial connects to Dst.
	Dial func(context.Context) (net.Conn, error)
}

// Proxy serves the connections of one sandbox. Safe for concurrent use.
type Proxy struct {
	cfg      Config
	server   *http.Server
	queue    *queue
	reverse  *httputil.ReverseProxy
	forward  *http.Transport
	sessions tls.ClientSessionCache

	serving chan struct{} // closed when the server has returned
}

// New starts a proxy. Close it.
func New(cfg Config) *Proxy {
	p := &Proxy{cfg: cfg, queue: newQueue(), sessions: tls.NewLRUClientSessionCache(64), serving: make(chan struct{})}
	errorLog := log.New(debugWriter{cfg.Logger}, "", 0)
	p.forward = p.newTransport(autoHTTP, p.dialForward)
	p.forward.MaxIdleConnsPerHost, p.forward.IdleConnTimeout = maxUpstream, time.Minute
	p.reverse = &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: transportOf{}, FlushInterval: -1, BufferPool: buffers{}, ErrorLog: errorLog,
		ModifyResponse: p.responded, ErrorHandler: p.failed,
	}
	p.server = &http.Server{
		Handler: http.HandlerFunc(p.serveHTTP), ErrorLog: errorLog, Protocols: new(http.Protocols),
		ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeader, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: 4 << 20, MaxReceiveBufferPerStream: 1 << 20},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, connOf(c))
		},
		ConnState: p.stateChanged,
	}
	p.server.Protocols.SetHTTP1(true)
	p.server.Protocols.SetHTTP2(true)
	p.server.Protocols.SetUnencryptedHTTP2(true)
	go func() {
		defer close(p.serving)
		_ = p.server.Serve(p.queue) // always the error of the closed queue
	}()
	return p
}

// Serve serves c and returns when it is closed and nothing of it runs.
func (p *Proxy) Serve(c Conn) {
	k := &conn{Conn: c.Guest, Info: c, p: p, closed: make(chan struct{})}
	defer k.end()
	var nc net.Conn = k
	if c.Server != "" {
		cert, err := p.cfg.CA.certificate(c.Server)
		if err != nil {
			p.cfg.Logger.Error("open TLS connection", "name", c.Server, "err", err)
			k.Close()
			return
		}
		nc = tls.Server(k, &tls.Config{
			Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2", "http/1.1"},
			MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true,
		})
	}
	if !p.queue.put(nc) {
		k.Close()
		return
	}
	<-k.closed
}

// Close ends what is served. The connections' owner closes those that a
// protocol change has handed over.
func (p *Proxy) Close() {
	p.server.Close()
	p.queue.Close()
	<-p.serving
	p.forward.CloseIdleConnections()
}

// conn is one connection with what belongs to it.
type conn struct {
	net.Conn
	Info Conn
	p    *Proxy

	once   sync.Once
	closed chan struct{}
	work   sync.WaitGroup // requests

	mu         sync.Mutex // guards what follows
	ended      bool
	read       bool // something
	begun      int  // requests whose first byte has come (HTTP/1), but for the first of a plain connection
	served     int  // requests that were whole
	transports map[httpKind]*http.Transport
}

// Read notes that something was read.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.mu.Lock()
		c.read = true
		c.mu.Unlock()
	}
	return n, err
}

// Close closes the guest's side.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.closed) })
	return err
}

// CloseWrite passes an end on, where the connection can.
func (c *conn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return c.Close()
}

// enter registers a request; false when the connection has ended.
func (c *conn) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.served++
	c.work.Add(1)
	return true
}

// end waits for the requests and drops the connections made for them.
func (c *conn) end() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.work.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.transports {
		t.CloseIdleConnections()
	}
}

func (c *conn) proto() string {
	if c.Info.Server != "" {
		return egress.HTTPS
	}
	return egress.HTTP
}

type connKey struct{}

func connOf(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return c.(*conn)
}

// stateChanged notices requests that the HTTP parser has refused: they reach
// no handler, and the user should know why nothing was passed on.
func (p *Proxy) stateChanged(nc net.Conn, s http.ConnState) {
	c := connOf(nc)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s {
	case http.StateActive:
		c.begun++
	case http.StateClosed:
		if t, ok := nc.(*tls.Conn); ok && t.ConnectionState().NegotiatedProtocol == "h2" {
			return
		}
		if c.begun > c.served || c.read && c.served == 0 && c.Info.Server == "" {
			p.cfg.Record(egress.Decision{Name: c.name(), Addr: c.Info.Dst, Proto: c.proto()},
				egress.Verdict{Rule: "malformed request", Reason: "the request was malformed or broken off, and not passed on"})
		}
	}
}

// name is what the connection is about where no request says so.
func (c *conn) name() string {
	if c.Info.Server != "" {
		return c.Info.Server
	}
	if n := len(c.Info.Names); n > 0 {
		return c.Info.Names[n-1]
	}
	return ""
}

// queue is a listener of connections that are handed to it.
type queue struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newQueue() *queue { return &queue{conns: make(chan net.Conn), done: make(chan struct{})} }

func (q *queue) put(c net.Conn) bool {
	select {
	case q.conns <- c:
		return true
	case <-q.done:
		return false
	}
}

// Accept implements net.Listener.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.done) })
	return nil
}

// Addr implements net.Listener.
func (q *queue) Addr() net.Addr { return &net.TCPAddr{} }

// buffers lends what bodies are copied by.
type buffers struct{}

var bufferPool = sync.Pool{New: func() any { return new([128 << 10]byte) }}

// Get implements httputil.BufferPool.
func (buffers) Get() []byte { return bufferPool.Get().(*[128 << 10]byte)[:] }

// Put implements httputil.BufferPool.
func (buffers) Put(b []byte) { bufferPool.Put((*[128 << 10]byte)(b)) }

// debugWriter takes the messages of net/http: what a guest can bring about
// at will is for debuggers.
type debugWriter struct{ log *slog.Logger }

func (w debugWriter) Write(b []byte) (int, error) {
	w.log.Debug("intercepted connection", "msg", strings.TrimSpace(string(b)))
	return len(b), nil
}
