package preview

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// pool sends each request over its target's own http.Transport. A transport
// lives until its session ends, so that connections are used again and none
// outlives the machine it leads to.
type pool struct {
	mu     sync.Mutex // guards what follows
	byKey  map[string]*http.Transport
	closed chan struct{}
	wg     sync.WaitGroup
}

func newPool() *pool {
	return &pool{byKey: map[string]*http.Transport{}, closed: make(chan struct{})}
}

// RoundTrip implements http.RoundTripper.
func (p *pool) RoundTrip(r *http.Request) (*http.Response, error) {
	t := target(r.Context())
	if t == nil {
		return nil, errors.New("request without a target")
	}
	return p.transport(t).RoundTrip(r)
}

func (p *pool) transport(t *Target) *http.Transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	if tr := p.byKey[t.Key]; tr != nil {
		return tr
	}
	tr := newTransport(t.Dial)
	if ended(p.closed) || ended(t.Done) {
		tr.DisableKeepAlives = true // nobody would close what it keeps
		return tr
	}
	p.byKey[t.Key] = tr
	done, key := t.Done, t.Key
	p.wg.Go(func() {
		select {
		case <-done:
		case <-p.closed:
		}
		p.mu.Lock()
		delete(p.byKey, key)
		p.mu.Unlock()
		tr.CloseIdleConnections()
	})
	return tr
}

// close closes idle connections and waits for the watchers.
func (p *pool) close() {
	p.mu.Lock()
	if !ended(p.closed) {
		close(p.closed)
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// newTransport speaks HTTP/1.1 with one port.
func newTransport(dial func(context.Context) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			return dial(ctx)
		},
		DisableCompression:  true, // bytes pass as they are
		MaxIdleConnsPerHost: 64,
		MaxIdleConns:        64,
		IdleConnTimeout:     idleTimeout,
		// The app's "100 Continue" or refusal is awaited before the body is
		// asked of the client, so that it can refuse a large upload.
		ExpectContinueTimeout: 5 * time.Second,
		WriteBufferSize:       64 << 10,
		ReadBufferSize:        64 << 10,
		// No ResponseHeaderTimeout: an app may think as long as it likes.
		MaxResponseHeaderBytes: 1 << 20,
	}
}

const (
	// dialTimeout bounds the way into a sandbox that has stopped answering.
	dialTimeout = 15 * time.Second
	// idleTimeout of a kept connection is shorter than that of common
	// servers (gunicorn 2 s, Node.js 5 s): who closes first decides whether a
	// POST can fail because the app closed the connection it went out on.
	idleTimeout = time.Second
)

// copyBuffers lends the buffers that bodies are copied with.
type copyBuffers struct{}

var bufs = sync.Pool{New: func() any { return new([64 << 10]byte) }}

func (copyBuffers) Get() []byte  { return bufs.Get().(*[64 << 10]byte)[:] }
func (copyBuffers) Put(b []byte) { bufs.Put((*[64 << 10]byte)(b)) }
