package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/glovebox-dev/glovebox/client"
)

// previewPort is the guest's; startTimeout is for the program behind it.
const (
	previewPort  = 3000
	startTimeout = 30 * time.Second
)

// respond is a web server of one line.
const respond = `require("http").createServer((_, res) => res.end("hello")).listen(Number(process.argv[1]), process.argv[2])`

func init() {
	add(bench{name: "preview", title: "a request to a web server inside (the others share the host's network)", unit: "ms", rounds: times(5), open: openPreview})
}

func openPreview(ctx context.Context, r *rig, s *scope) ([]contender, error) {
	srv, err := r.server(ctx, defaultWarm)
	if err != nil {
		return nil, err
	}
	box, err := srv.sandbox(ctx, s, previewPort)
	if err != nil {
		return nil, err
	}
	if _, err := box.StartCommand(ctx, client.Cmd{Name: "node", Args: []string{"-e", respond, strconv.Itoa(previewPort), "0.0.0.0"}}); err != nil {
		return nil, err
	}
	url, err := box.Domain(previewPort)
	if err != nil {
		return nil, err
	}
	w := srv.wire(s)
	kept := func(ctx context.Context) error { return w.get(ctx, url) }
	fresh := func(ctx context.Context) error {
		w.http.CloseIdleConnections()
		return w.get(ctx, url)
	}
	if err := answers(ctx, kept); err != nil {
		return nil, err
	}
	out := []contender{
		timed("glovebox", kept),
		timed("glovebox, a new connection each time", fresh),
		timed("  an HTTP request that does nothing", srv.wire(s).health),
	}
	for _, p := range r.peers {
		c, err := directRequest(ctx, s, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name(), err)
		}
		out = append(out, c)
	}
	return out, nil
}

// directRequest asks a server in a peer that shares the host's network.
func directRequest(ctx context.Context, s *scope, p peer) (contender, error) {
	addr, err := freeAddr()
	if err != nil {
		return contender{}, err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return contender{}, err
	}
	b, err := p.open(ctx, true, "node", "-e", respond, port, host)
	if err != nil {
		return contender{}, err
	}
	s.onClose(func() error { return b.close(ctx) })
	t := &http.Transport{}
	s.onClose(func() error { t.CloseIdleConnections(); return nil })
	w := wire{base: "http://" + addr, http: &http.Client{Transport: t}}
	get := func(ctx context.Context) error { return w.get(ctx, w.base+"/") }
	return timed(p.name()+", direct", get), answers(ctx, get)
}

// get expects the answer of respond.
func (w wire) get(ctx context.Context, url string) error {
	hello := payload{name: url, size: len("hello")}
	return hello.check(func(to io.Writer) error { return w.do(ctx, http.MethodGet, url, nil, nil, to) })
}

// answers waits until a request is answered as it should be.
func answers(ctx context.Context, request func(context.Context) error) error {
	var last error
	err := await(ctx, startTimeout, func() (bool, error) {
		last = request(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the web server: %w (%w)", err, last)
	}
	return nil
}
