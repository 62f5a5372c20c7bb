package netstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	resolvConf = "/etc/resolv.conf"
	// serverTimeout bounds the wait for one server when there is another.
	serverTimeout = 2 * time.Second
	// udpAnswer is the largest answer that is asked for over UDP; it passes
	// every path unfragmented (DNS flag day 2020).
	udpAnswer = 1232
)

// Upstream answers DNS queries. Safe for concurrent use. The answer is not
// trusted; it must be to the question asked.
type Upstream interface {
	Exchange(ctx context.Context, q *dns.Msg) (*dns.Msg, error)
}

// NewUpstream asks the given servers in turn: a comma-separated list of
// host[:port], such as GLOVEBOX_DNS holds. An empty list means those of the
// host's resolv.conf, which is read again when it changes.
func NewUpstream(list string) (Upstream, error) {
	if strings.TrimSpace(list) == "" {
		return HostUpstream(), nil
	}
	u := &upstream{}
	for f := range strings.SplitSeq(list, ",") {
		s, err := serverAddr(strings.TrimSpace(f))
		if err != nil {
			return nil, err
		}
		u.servers = append(u.servers, s)
	}
	return u, nil
}

// HostUpstream asks the resolvers of this host; all stacks share one.
var HostUpstream = sync.OnceValue(func() Upstream { return &upstream{conf: resolvConf} })

func serverAddr(s string) (string, error) {
	host, port := s, "53"
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		host = a.String()
	} else if h, p, err := net.SplitHostPort(s); err == nil {
		host, port = h, p
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 || host == "" || strings.ContainsAny(host, " /") {
		return "", fmt.Errorf("GLOVEBOX_DNS: %q is no DNS server; write HOST or HOST:PORT, several with commas between", s)
	}
	return net.JoinHostPort(host, port), nil
}

// upstream asks servers one after the other until one gives an answer.
type upstream struct {
	conf string // where to read servers from, if anywhere

	mu      sync.Mutex // guards what follows
	servers []string
	stamp   time.Time // of conf when servers was read
	checked time.Time
}

func (u *upstream) list() ([]string, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.conf == "" || time.Since(u.checked) < time.Second {
		return u.servers, nil
	}
	st, err := os.Stat(u.conf)
	if err != nil {
		return nil, err
	}
	u.checked = time.Now()
	if st.ModTime().Equal(u.stamp) {
		return u.servers, nil
	}
	c, err := dns.ClientConfigFromFile(u.conf)
	if err != nil {
		return nil, err
	}
	u.servers, u.stamp = nil, st.ModTime()
	for _, s := range c.Servers {
		u.servers = append(u.servers, net.JoinHostPort(s, c.Port))
	}
	return u.servers, nil
}

// Exchange implements Upstream.
func (u *upstream) Exchange(ctx context.Context, q *dns.Msg) (*dns.Msg, error) {
	servers, err := u.list()
	if err != nil {
		return nil, fmt.Errorf("list DNS servers: %w", err)
	}
	if len(servers) == 0 {
		return nil, errors.New("the host has no DNS server; set GLOVEBOX_DNS")
	}
	var errs []error
	for i, s := range servers {
		r, err := exchange(ctx, q, s, i < len(servers)-1)
		if err == nil && r.Rcode != dns.RcodeServerFailure && r.Rcode != dns.RcodeRefused {
			return r, nil
		}
		if err == nil {
			err = fmt.Errorf("answered %s", dns.RcodeToString[r.Rcode])
		}
		errs = append(errs, fmt.Errorf("DNS server %s: %w", s, err))
	}
	return nil, errors.Join(errs...)
}

func exchange(ctx context.Context, q *dns.Msg, server string, others bool) (*dns.Msg, error) {
	if others {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, serverTimeout)
		defer cancel()
	}
	r, err := exchangeOver(ctx, "udp", q, server)
	if err == nil && r.Truncated {
		r, err = exchangeOver(ctx, "tcp", q, server)
	}
	return r, err
}

func exchangeOver(ctx context.Context, network string, q *dns.Msg, server string) (*dns.Msg, error) {
	c := dns.Client{Net: network, UDPSize: udpAnswer, Timeout: queryTimeout}
	r, _, err := c.ExchangeContext(ctx, q, server)
	if err != nil {
		return nil, err
	}
	if len(r.Question) != 1 || !strings.EqualFold(r.Question[0].Name, q.Question[0].Name) || r.Question[0].Qtype != q.Question[0].Qtype {
		return nil, errors.New("the answer is to another question")
	}
	return r, nil
}
