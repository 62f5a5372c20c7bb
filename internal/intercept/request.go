package intercept

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/egress"
	"github.com/glovebox-dev/glovebox/internal/egress/rule"
)

// refusal is why a request is not passed on.
type refusal struct {
	status       int
	rule, reason string
	recorded     bool
}

func refuse(status int, rule, format string, args ...any) *refusal {
	return &refusal{status: status, rule: rule, reason: fmt.Sprintf(format, args...)}
}

func (p *Proxy) serveHTTP(w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(connKey{}).(*conn)
	if !c.enter() {
		panic(http.ErrAbortHandler)
	}
	defer c.work.Done()
	pl := &plan{c: c}
	if no := p.plan(pl, r); no != nil {
		p.answerRefusal(w, r, pl, no)
		return
	}
	if pl.rule != nil && pl.rule.Kind == rule.Respond {
		p.respond(w, r, pl)
		return
	}
	if r.ProtoMajor == 1 {
		// A destination may answer while it still reads.
		_ = http.NewResponseController(w).EnableFullDuplex() // always possible for HTTP/1
	}
	p.reverse.ServeHTTP(w, r.WithContext(withPlan(r.Context(), pl)))
}

// plan fills in what is to become of r.
func (p *Proxy) plan(pl *plan, r *http.Request) *refusal {
	policy := p.cfg.Policy()
	if no := p.checkTarget(pl, r); no != nil {
		return no
	}
	var set rule.Set
	if pl.known {
		pl.pattern, set = policy.Rules(pl.name)
	}
	if len(set) == 0 {
		return nil
	}
	return pl.apply(set, r)
}

// checkTarget holds the request against the connection: a name that is
// allowed must not be the way to another.
func (p *Proxy) checkTarget(pl *plan, r *http.Request) *refusal {
	c := pl.c
	if r.Method == http.MethodConnect {
		return refuse(http.StatusMethodNotAllowed, "CONNECT", "this is no proxy to tunnel through; connect to the destination itself")
	}
	if h, ok := r.Header["Host"]; ok && (len(h) != 1 || !strings.EqualFold(h[0], r.Host)) {
		return refuse(http.StatusBadRequest, "host name", "the request has the host header %.200q and the authority %.200q", h, r.Host)
	}
	host, port := splitHost(r.Host)
	pl.name = egress.NormalName(host)
	if pl.name == "" && len(c.Info.Names) == 1 && !r.ProtoAtLeast(1, 1) {
		pl.name = c.Info.Names[0] // HTTP/1.0 need not say it
		r.Host = pl.name
	}
	if c.Info.Server != "" {
		if pl.name != c.Info.Server {
			return refuse(http.StatusMisdirectedRequest, "host name", "the request is for %.200q, the connection is for %q; use a connection of its own", r.Host, c.Info.Server)
		}
		pl.known = true
	} else if slices.Contains(c.Info.Names, pl.name) {
		pl.known = true
	} else if c.Info.Strict {
		return refuse(http.StatusForbidden, "host name", "the request is for %.200q, but %s was resolved for %.200s", r.Host, c.Info.Dst.Addr(), strings.Join(c.Info.Names, ", "))
	}
	if pl.known && port != "" && port != strconv.Itoa(int(c.Info.Dst.Port())) {
		return refuse(http.StatusMisdirectedRequest, "host name", "the request is for port %.10q, the connection is to port %d", port, c.Info.Dst.Port())
	}
	if c.Info.Server == "" { // else that was judged when it was named
		if v := p.cfg.Recheck(c.Info.Dst, pl.name); !v.Allowed {
			return &refusal{status: http.StatusForbidden, rule: v.Rule, reason: v.Reason, recorded: true}
		}
	}
	return nil
}

// splitHost takes the port off, where there is one.
func splitHost(s string) (host, port string) {
	if h, p, err := net.SplitHostPort(s); err == nil {
		return h, p
	}
	return s, ""
}

// apply finds the rule and what it makes of r.
func (pl *plan) apply(set rule.Set, r *http.Request) *refusal {
	pl.ruled = true
	name := "allow " + pl.pattern
	if r.Method == http.MethodTrace || r.Method == "TRACK" {
		return refuse(http.StatusMethodNotAllowed, name, "%s would show what the network policy adds to requests", r.Method)
	}
	if pl.path = r.URL.EscapedPath(); pl.path == "" || r.URL.Path == "*" {
		pl.path = "/" // the absolute form without a path; OPTIONS * is about the server as a whole
	}
	var err error
	if pl.path, err = rule.Canonical(pl.path); err != nil {
		return refuse(http.StatusBadRequest, name, "%v", err)
	}
	i, err := set.Find(rule.Request{Method: r.Method, Path: pl.path, Query: r.URL.RawQuery, Host: r.Host, Header: r.Header})
	if err != nil {
		return refuse(http.StatusForbidden, name, "%v", err)
	}
	if i >= 0 {
		pl.rule, pl.index = &set[i], i
	}
	return nil
}

// ruleName names what decided, for the log and for people.
func (pl *plan) ruleName() string {
	if pl.rule == nil {
		return "allow " + pl.pattern
	}
	return fmt.Sprintf("allow %s[%d].%s", pl.pattern, pl.index, pl.rule.Kind)
}

func (p *Proxy) record(pl *plan, r *http.Request, status int, v egress.Verdict) {
	p.cfg.Record(egress.Decision{
		Name: pl.name, Addr: pl.c.Info.Dst, Proto: pl.c.proto(), Method: r.Method, Path: r.URL.EscapedPath(), Status: status,
	}, v)
}

// answerRefusal tells the guest, in words, and the log.
func (p *Proxy) answerRefusal(w http.ResponseWriter, r *http.Request, pl *plan, no *refusal) {
	if !no.recorded {
		p.record(pl, r, no.status, egress.Verdict{Rule: no.rule, Reason: no.reason})
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.ProtoMajor == 1 {
		h.Set("Connection", "close") // what is left of the body is not worth reading
	}
	w.WriteHeader(no.status)
	fmt.Fprintf(w, "glovebox: refused by the sandbox's network policy (%s): %s\n", no.rule, no.reason)
}

// respond is a rule's own answer.
func (p *Proxy) respond(w http.ResponseWriter, r *http.Request, pl *plan) {
	a := pl.rule.Response
	v := egress.Verdict{Allowed: a.Status < 400, Rule: pl.ruleName()}
	if !v.Allowed {
		v.Reason = "the rule answers in place of the destination"
	}
	p.record(pl, r, a.Status, v)
	for k, vs := range a.Header {
		w.Header()[k] = slices.Clone(vs)
	}
	w.WriteHeader(a.Status)
	_, _ = io.WriteString(w, a.Body) // a guest that is gone needs no answer
}
