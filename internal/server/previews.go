package server

import (
	"net/http"
	"strings"
	"sync"
)

const (
	// maxPreviews bounds the requests to previews in progress, WebSockets
	// included: each holds a descriptor and memory, and nobody needs a token
	// to make one.
	maxPreviews = 8192
	// maxPreviewsHost is the same for one port of one sandbox, so that none
	// takes what the others need.
	maxPreviewsHost = 2048
)

// previewGate counts the requests to previews in progress.
type previewGate struct {
	mu     sync.Mutex
	total  int
	byHost map[string]int
}

// enter takes a place for a request to host until leave is called; false
// where there is none.
func (g *previewGate) enter(host string) (leave func(), ok bool) {
	host = strings.ToLower(host)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.total >= maxPreviews || g.byHost[host] >= maxPreviewsHost {
		return nil, false
	}
	if g.byHost == nil {
		g.byHost = map[string]int{}
	}
	g.total++
	g.byHost[host]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.total--
		if g.byHost[host]--; g.byHost[host] == 0 {
			delete(g.byHost, host)
		}
	}, true
}

// servePreview passes a request on to a sandbox.
func (s *Server) servePreview(w http.ResponseWriter, r *http.Request) {
	leave, ok := s.previews.enter(r.Host)
	if !ok {
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "too many requests to this address are in progress; try again later", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	s.preview.ServeHTTP(w, r)
}
