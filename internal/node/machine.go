package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/egress"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/intercept"
	"github.com/glovebox-dev/glovebox/internal/netstack"
	"github.com/glovebox-dev/glovebox/internal/oidc"
	"github.com/glovebox-dev/glovebox/internal/snapshot"
)

const (
	// agentTimeout bounds how long a booted machine's agent may take to answer.
	agentTimeout = 20 * time.Second
	// reconnectTimeout bounds how long a lost connection to a living agent is retried.
	reconnectTimeout = 5 * time.Second
)

// machine joins a driver's machine, the stack at the end of its cable and the
// connection to its agent. It owns all three: they end together, when the
// driver's machine does.
type machine struct {
	driver.Machine
	net    *netstack.Stack
	secret [32]byte
	size   size
	log    *slog.Logger
	snaps  *snapshot.Store // may be nil
	root   root            // what it was assembled from; set under node.mu
	ca     *intercept.CA
	done   chan struct{} // closed after stack and connection are closed too

	mu    sync.Mutex // guards what follows
	agent *guest.Conn
	made  map[string][]byte // by us, see made; never changed
	env   map[string]string // see Env; never changed
	ident oidc.Identity

	trusting sync.Mutex // held while the CA is installed; before mu
}

// boot starts a bare machine and connects to its agent. On error nothing of it remains.
func (n *node) boot(ctx context.Context, sz size) (_ *machine, err error) {
	id := newMachineID()
	ca, err := intercept.NewCA()
	if err != nil {
		return nil, fmt.Errorf("start machine %s: %w", id, err)
	}
	dm, err := n.cfg.Driver.Start(ctx, driver.Spec{
		ID: id, VCPUs: sz.vcpus, MemoryBytes: sz.memory, DiskBytes: sz.disk, Hostname: Hostname,
	})
	if err != nil {
		return nil, fmt.Errorf("start machine %s: %w", id, err)
	}
	m := &machine{Machine: dm, size: sz, ca: ca, log: n.log, snaps: n.cfg.Snapshots, done: make(chan struct{})}
	n.add(m)
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Stop(context.WithoutCancel(ctx)))
		}
	}()
	if _, err := rand.Read(m.secret[:]); err != nil {
		return nil, fmt.Errorf("make secret of machine %s: %w", id, err)
	}
	dctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	// Deny-all until a session claims the machine: a warm one needs no network.
	if err := n.connect(dctx, m, egress.DenyAll()); err != nil {
		return nil, err
	}
	if err := m.agent.Warmup(dctx); err != nil {
		return nil, fmt.Errorf("warm up machine %s: %w", id, err)
	}
	return m, nil
}

// connect puts a network on the cable of a machine, and reaches its agent.
func (n *node) connect(ctx context.Context, m *machine, policy egress.Policy) (err error) {
	m.net, err = netstack.New(netstack.Config{Cable: m.Cable(), Policy: policy, CA: m.ca, Roots: n.cfg.Roots, Token: n.tokens(m), Upstream: n.cfg.Upstream, Deny: n.cfg.Deny, Hostname: Hostname, Logger: n.cfg.Logger})
	go n.watch(m)
	if err != nil {
		return fmt.Errorf("network of machine %s: %w", m.ID(), err)
	}
	if m.agent, err = m.dialAgent(ctx); err != nil {
		return fmt.Errorf("reach agent of machine %s: %w", m.ID(), err)
	}
	return nil
}

// watch closes what hangs on the driver's machine once that has ended, and
// takes it off the books.
func (n *node) watch(m *machine) {
	<-m.Machine.Done()
	m.mu.Lock()
	if m.agent != nil {
		m.agent.Close()
	}
	m.mu.Unlock()
	if m.net != nil {
		m.net.Close()
	}
	n.drop(m)
	close(m.done)
}

func (m *machine) Done() <-chan struct{} { return m.done }

func (m *machine) dialAgent(ctx context.Context) (*guest.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // a machine that dies while it is dialled ends the wait
		select {
		case <-m.Machine.Done():
			cancel(m.Machine.Err())
		case <-ctx.Done():
		}
	}()
	c, err := guest.Dial(ctx, func(ctx context.Context) (net.Conn, error) {
		return m.net.DialAgent(ctx)
	}, m.secret)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		return nil, err
	}
	return c, nil
}

// conn returns the connection to the agent, a new one where the old one broke
// while the machine lives on.
func (m *machine) conn(ctx context.Context) (*guest.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.Machine.Done():
		return nil, driver.ErrStopped
	default:
	}
	if m.agent.Err() == nil {
		return m.agent, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reconnectTimeout)
	defer cancel()
	c, err := m.dialAgent(ctx)
	if err != nil {
		return nil, fmt.Errorf("reconnect to agent of machine %s: %w", m.ID(), err)
	}
	if err := c.Takeover(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("take over agent of machine %s: %w", m.ID(), err)
	}
	m.agent.Close()
	m.agent = c
	return c, nil
}

// call runs f on the agent's connection and reports the end of the machine as
// driver.ErrStopped, whatever f saw of it.
func (m *machine) call(ctx context.Context, f func(*guest.Conn) error) error {
	c, err := m.conn(ctx)
	if err != nil {
		return err
	}
	err = f(c)
	if errors.Is(err, guest.ErrClosed) {
		select {
		case <-m.Machine.Done():
			return driver.ErrStopped
		default:
		}
	}
	return err
}

func (m *machine) StartCommand(ctx context.Context, c guest.Command) error {
	return m.call(ctx, func(g *guest.Conn) error { return g.StartCommand(ctx, c) })
}

// Attach survives a lost connection: the cursor says where to go on.
func (m *machine) Attach(ctx context.Context, id string, cursor int64, sink func(int64, []byte) error) error {
	for {
		var sinkErr error
		err := m.call(ctx, func(g *guest.Conn) error {
			return g.Attach(ctx, id, cursor, func(off int64, b []byte) error {
				if sinkErr = sink(off, b); sinkErr == nil {
					cursor = off + int64(len(b))
				}
				return sinkErr
			})
		})
		if err == nil || sinkErr != nil || ctx.Err() != nil || !errors.Is(err, guest.ErrClosed) {
			return err
		}
	}
}

func (m *machine) Signal(ctx context.Context, id string, sig int, tree bool) error {
	return m.call(ctx, func(g *guest.Conn) error { return g.Signal(ctx, id, sig, tree) })
}

func (m *machine) WriteStdin(ctx context.Context, id string, p []byte) error {
	return m.call(ctx, func(g *guest.Conn) error { return g.WriteStdin(ctx, id, p) })
}

func (m *machine) CloseStdin(ctx context.Context, id string) error {
	return m.call(ctx, func(g *guest.Conn) error { return g.CloseStdin(ctx, id) })
}

func (m *machine) Resize(ctx context.Context, id string, size guest.Winsize) error {
	return m.call(ctx, func(g *guest.Conn) error { return g.Resize(ctx, id, size) })
}

func (m *machine) ReadFile(ctx context.Context, path string) (r io.ReadCloser, fi guest.FileInfo, err error) {
	err = m.call(ctx, func(g *guest.Conn) error { r, fi, err = g.ReadFile(ctx, path); return err })
	return r, fi, err
}

func (m *machine) Stat(ctx context.Context, path string) (fi guest.FileInfo, err error) {
	err = m.call(ctx, func(g *guest.Conn) error { fi, err = g.Stat(ctx, path); return err })
	return fi, err
}

func (m *machine) Mkdir(ctx context.Context, path string, owner guest.User) error {
	return m.call(ctx, func(g *guest.Conn) error { return g.Mkdir(ctx, path, owner) })
}

func (m *machine) WriteTar(ctx context.Context, dir string, owner guest.User, r io.Reader, verify func() error) error {
	return m.call(ctx, func(g *guest.Conn) error { return g.WriteTar(ctx, dir, owner, r, verify) })
}

// Dial tries the guest's address first: that needs no help of the agent. Only
// a server on the guest's loopback needs it.
func (m *machine) Dial(ctx context.Context, port int) (net.Conn, error) {
	select {
	case <-m.Machine.Done():
		return nil, driver.ErrStopped
	default:
	}
	if port != driver.AgentPort {
		c, err := m.net.DialContext(ctx, port)
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) {
			return c, err
		}
	}
	var c net.Conn
	err := m.call(ctx, func(g *guest.Conn) (err error) { c, err = g.DialPort(ctx, port); return err })
	if err != nil {
		return nil, err
	}
	return m.net.Count(c), nil
}

// tokens signs for whoever holds m.
func (n *node) tokens(m *machine) func(string) (string, error) {
	if n.cfg.Token == nil {
		return nil
	}
	return func(audience string) (string, error) {
		m.mu.Lock()
		id := m.ident
		m.mu.Unlock()
		return n.cfg.Token(id, audience)
	}
}

func (m *machine) identify(id oidc.Identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ident = id
}

func (m *machine) SetPolicy(ctx context.Context, p egress.Policy) error {
	if p.HasRules() {
		if err := m.installCA(ctx); err != nil {
			return fmt.Errorf("install the CA of machine %s: %w", m.ID(), err)
		}
	}
	m.net.SetPolicy(p)
	return nil
}

func (m *machine) Usage(ctx context.Context) (Usage, error) {
	u, err := m.Machine.Usage(ctx)
	if err != nil {
		return Usage{}, fmt.Errorf("usage of machine %s: %w", m.ID(), err)
	}
	in, out := m.net.Usage()
	return Usage{Usage: u, IngressBytes: int64(in), EgressBytes: int64(out)}, nil
}

func (m *machine) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StopTimeout)
	defer cancel()
	if err := m.Machine.Stop(ctx); err != nil {
		return fmt.Errorf("stop machine %s: %w", m.ID(), err)
	}
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop machine %s: %w", m.ID(), ctx.Err())
	}
}
