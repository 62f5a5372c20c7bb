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

// respond is a web server of one line; /big is streamMiB of zeros.
const respond = `require("http").createServer((req, res) => {
  if (req.url !== "/big") return res.end("hello");
  const piece = Buffer.alloc(1 << 20);
  let left = ` + streamText + `;
  (function more() { while (left-- > 0) if (!res.write(piece)) return res.once("drain", more); res.end(); })();
}).listen(Number(process.argv[1]), process.argv[2])`

// streamMiB is what one transfer from a web server carries.
const (
	streamMiB  = 128
	streamText = "128"
)

func init() {
	add(bench{name: "stream", title: fmt.Sprintf("%d MiB from a web server inside (the others share the host's network)", streamMiB), unit: "ms", rounds: part(4), open: openStream})
	add(bench{name: "preview", title: "a request to a web server inside (the others share the host's network)", unit: "ms", rounds: times(5), open: openPreview})
}

// previewed starts the web server in a sandbox and returns how it is reached.
func previewed(ctx context.Context, r *rig, s *scope) (*server, wire, string, error) {
	srv, err := r.server(ctx, defaultWarm)
	if err != nil {
		return nil, wire{}, "", err
	}
	box, err := srv.sandbox(ctx, s, previewPort)
	if err != nil {
		return nil, wire{}, "", err
	}
	if _, err := box.StartCommand(ctx, client.Cmd{Name: "node", Args: []string{"-e", respond, strconv.Itoa(previewPort), "0.0.0.0"}}); err != nil {
		return nil, wire{}, "", err
	}
	url, err := box.Domain(previewPort)
	return srv, srv.wire(s), url, err
}

func openStream(ctx context.Context, r *rig, s *scope) ([]contender, error) {
	_, w, url, err := previewed(ctx, r, s)
	if err != nil {
		return nil, err
	}
	if err := answers(ctx, func(ctx context.Context) error { return w.get(ctx, url) }); err != nil {
		return nil, err
	}
	out := []contender{timed("glovebox, by its preview", func(ctx context.Context) error { return w.stream(ctx, url) })}
	for _, p := range r.peers {
		d, err := direct(ctx, s, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name(), err)
		}
		out = append(out, timed(p.name()+", direct", func(ctx context.Context) error { return d.stream(ctx, d.base) }))
	}
	return out, nil
}

// stream gets what respond has below /big.
func (w wire) stream(ctx context.Context, url string) error {
	big := payload{name: url, size: streamMiB << 20}
	return big.check(func(to io.Writer) error { return w.do(ctx, http.MethodGet, url+"/big", nil, nil, to) })
}

func openPreview(ctx context.Context, r *rig, s *scope) ([]contender, error) {
	srv, w, url, err := previewed(ctx, r, s)
	if err != nil {
		return nil, err
	}
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
		d, err := direct(ctx, s, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name(), err)
		}
		out = append(out, timed(p.name()+", direct", func(ctx context.Context) error { return d.get(ctx, d.base+"/") }))
	}
	return out, nil
}

// direct starts the web server in a peer that shares the host's network.
func direct(ctx context.Context, s *scope, p peer) (wire, error) {
	addr, err := freeAddr()
	if err != nil {
		return wire{}, err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return wire{}, err
	}
	b, err := p.open(ctx, true, "node", "-e", respond, port, host)
	if err != nil {
		return wire{}, err
	}
	s.onClose(func() error { return b.close(ctx) })
	t := &http.Transport{}
	s.onClose(func() error { t.CloseIdleConnections(); return nil })
	w := wire{base: "http://" + addr, http: &http.Client{Transport: t}}
	return w, answers(ctx, func(ctx context.Context) error { return w.get(ctx, w.base+"/") })
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
