package intercept

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/egress"
	"github.com/glovebox-dev/glovebox/internal/egress/rule"
)

// plan is what becomes of one request.
type plan struct {
	c       *conn
	name    string // of the host that it is for
	known   bool   // name is one that the address was given out for
	ruled   bool   // name has rules
	pattern string // of the entry of allow whose rules hold
	path    string // canonical; with ruled
	rule    *rule.Rule
	index   int // of rule
}

// forwards tells whether the request goes to a rule's proxy.
func (pl *plan) forwards() bool { return pl.rule != nil && pl.rule.Kind == rule.Forward }

type planKey struct{}

func withPlan(ctx context.Context, pl *plan) context.Context {
	return context.WithValue(ctx, planKey{}, pl)
}

func planOf(r *http.Request) *plan { return r.Context().Value(planKey{}).(*plan) }

// httpKind is which HTTP is spoken to a destination.
type httpKind int

const (
	autoHTTP  httpKind = iota // what TLS negotiates
	onlyHTTP1                 // for a request to change the protocol
	plainHTTP2
)

func (p *Proxy) newTransport(kind httpKind, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Transport {
	t := &http.Transport{
		DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: p.cfg.Roots, ClientSessionCache: p.sessions, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: headerTimeout, DisableCompression: true, MaxConnsPerHost: maxUpstream, MaxIdleConnsPerHost: maxUpstream,
		MaxResponseHeaderBytes: maxHeader, Protocols: new(http.Protocols), WriteBufferSize: 32 << 10, ReadBufferSize: 32 << 10,
	}
	t.Protocols.SetHTTP1(kind != plainHTTP2)
	t.Protocols.SetHTTP2(kind == autoHTTP)
	t.Protocols.SetUnencryptedHTTP2(kind == plainHTTP2)
	return t
}

// transportOf sends each request by a transport of its own connection's, so
// that connections end together and requests never share one.
type transportOf struct{}

// RoundTrip implements http.RoundTripper.
func (transportOf) RoundTrip(r *http.Request) (*http.Response, error) {
	pl := planOf(r)
	if pl.forwards() {
		token, err := pl.c.p.token(pl.rule.Audience())
		if err != nil {
			return nil, err
		}
		r.Header.Set("Vercel-Sandbox-Oidc-Token", token)
		return pl.c.p.forward.RoundTrip(r)
	}
	kind := autoHTTP
	switch {
	case r.Header.Get("Upgrade") != "":
		kind = onlyHTTP1
	case r.ProtoMajor == 2 && pl.c.Info.Server == "":
		kind = plainHTTP2
	}
	return pl.c.transport(kind).RoundTrip(r)
}

func (c *conn) transport(kind httpKind) *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transports == nil {
		c.transports = map[httpKind]*http.Transport{}
	}
	t := c.transports[kind]
	if t == nil {
		t = c.p.newTransport(kind, func(ctx context.Context, _, _ string) (net.Conn, error) { return c.Info.Dial(ctx) })
		c.transports[kind] = t
	}
	return t
}

func (p *Proxy) dialForward(ctx context.Context, _, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	return p.cfg.DialForward(ctx, host, uint16(n))
}

var errNoTokens = errors.New("this server signs no tokens, so nothing can be forwarded")

func (p *Proxy) token(audience string) (string, error) {
	if p.cfg.Token == nil {
		return "", errNoTokens
	}
	t, err := p.cfg.Token(audience)
	if err != nil {
		return "", fmt.Errorf("sign the token for %s: %w", audience, err)
	}
	return t, nil
}

// kept are headers that ReverseProxy takes away, for it does not know that it
// is none of the guest's making.
var kept = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// rewrite makes the request that goes out.
func rewrite(pr *httputil.ProxyRequest) {
	pl, in, out := planOf(pr.In), pr.In, pr.Out
	for _, k := range kept {
		if v, ok := in.Header[k]; ok {
			out.Header[k] = v
		}
	}
	if !mayUpgrade(in.Header.Get("Upgrade")) {
		out.Header.Del("Upgrade")
		out.Header.Del("Connection")
		out.Header.Del("Http2-Settings")
	}
	host := pl.c.Info.Dst.String()
	if pl.c.Info.Server != "" { // by which the certificate is verified
		host = net.JoinHostPort(pl.name, strconv.Itoa(int(pl.c.Info.Dst.Port())))
	}
	out.URL = &url.URL{
		Scheme: pl.c.proto(), Host: host,
		Path: in.URL.Path, RawPath: in.URL.RawPath, RawQuery: in.URL.RawQuery, ForceQuery: in.URL.ForceQuery,
	}
	out.Host, out.Trailer = in.Host, in.Trailer // which is filled in at the body's end
	if in.URL.Path == "*" && !pl.forwards() {
		return
	}
	if pl.ruled {
		setPath(out.URL, pl.path)
	}
	if pl.rule == nil {
		return
	}
	for _, h := range pl.rule.Headers {
		out.Header[h.Name] = []string{h.Value}
	}
	if pl.forwards() {
		rewriteForward(pl, out)
	}
}

// rewriteForward sends the request below the rule's address; the receiver
// takes its path off again to know the token's audience.
func rewriteForward(pl *plan, out *http.Request) {
	path := out.URL.EscapedPath()
	full := path
	if out.URL.RawQuery != "" || out.URL.ForceQuery {
		full += "?" + out.URL.RawQuery
	}
	for k := range out.Header {
		if k == "Vercel-Sandbox-Oidc-Token" || strings.HasPrefix(k, "Vercel-Forwarded-") {
			out.Header.Del(k)
		}
	}
	out.Header.Set("Vercel-Forwarded-Host", pl.name)
	out.Header.Set("Vercel-Forwarded-Scheme", pl.c.proto())
	out.Header.Set("Vercel-Forwarded-Port", strconv.Itoa(int(pl.c.Info.Dst.Port())))
	out.Header.Set("Vercel-Forwarded-Path", full)
	to := pl.rule.Forward
	query, force := out.URL.RawQuery, out.URL.ForceQuery
	out.URL = &url.URL{Scheme: "https", Host: to.Host, RawQuery: query, ForceQuery: force}
	setPath(out.URL, to.EscapedPath()+path)
	out.Host = to.Host
}

// setPath sets an escaped path that is sent as it is.
func setPath(u *url.URL, escaped string) {
	u.RawPath = escaped
	u.Path, _ = url.PathUnescape(escaped) // canonical: every escape is whole
}

// mayUpgrade refuses the protocols in which further requests would pass
// unseen.
func mayUpgrade(protocol string) bool {
	for p := range strings.SplitSeq(strings.ToLower(protocol), ",") {
		if p = textproto.TrimString(p); p == "h2c" || strings.HasPrefix(p, "http/") || strings.HasPrefix(p, "tls/") {
			return false
		}
	}
	return true
}

// responded records what a request with rules was answered.
func (p *Proxy) responded(res *http.Response) error {
	if pl := planOf(res.Request); pl.ruled {
		p.record(pl, pl.asked(res.Request), res.StatusCode, egress.Verdict{Allowed: true, Rule: pl.ruleName()})
	}
	return nil
}

// asked is a request as the guest meant it, canonical.
func (pl *plan) asked(r *http.Request) *http.Request {
	u := &url.URL{}
	setPath(u, pl.path)
	return &http.Request{Method: r.Method, URL: u}
}

// failed answers in the place of a destination that gave no answer.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	pl := planOf(r)
	to := fmt.Sprintf("%s (%s)", pl.name, pl.c.Info.Dst)
	if pl.forwards() {
		to = pl.rule.Audience()
	}
	p.cfg.Logger.Debug("intercepted request failed", "to", to, "err", err)
	if pl.ruled {
		p.record(pl, pl.asked(r), http.StatusBadGateway, egress.Verdict{Allowed: true, Rule: pl.ruleName(), Reason: err.Error()})
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusBadGateway)
	fmt.Fprintf(w, "glovebox: no answer from %s: %v\n", to, err)
}
