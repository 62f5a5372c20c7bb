package node

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/egress"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/netstack"
	"github.com/glovebox-dev/glovebox/internal/oidc"
	"github.com/glovebox-dev/glovebox/internal/snapshot"
)

// Config of a node on this host.
type Config struct {
	Driver driver.Driver
	// Snapshots keeps what machines have written; nil: they cannot be saved.
	Snapshots *snapshot.Store
	Logger    *slog.Logger
	// Upstream answers the DNS queries that policies allow; nil: the host's
	// own resolvers.
	Upstream netstack.Upstream
	// Deny is what no policy opens.
	Deny egress.DenyList
	// Roots verify the destinations of connections that policies open; nil:
	// those of the system.
	Roots *x509.CertPool
	// Token signs what requests to the proxies of policies carry; nil: nothing
	// can be forwarded.
	Token func(id oidc.Identity, audience string) (string, error)
	// MaxVCPUs one sandbox may ask for; 0: twice the host's CPUs, at least 4.
	MaxVCPUs int
	// ReserveBytes of the host's memory that no new machine may touch; 0: a
	// tenth of the host's, at most 2 GiB.
	ReserveBytes int64
	// Warm is how many machines wait for each image in demand; 0: none.
	Warm int
	// MaxWarm bounds all that wait; 0: 4 × Warm.
	MaxWarm int
}

// size is what a running machine cannot change.
type size struct {
	vcpus        int
	memory, disk int64
}

type node struct {
	cfg  Config
	log  *slog.Logger
	pool *pool

	mu       sync.Mutex
	closed   bool
	machines map[*machine]bool // every living one; true: it holds a session
}

// New makes the node of this host. What an earlier, dead server left behind
// is to be taken over, or removed with Sweep, before the first Start. Close it.
func New(cfg Config) (Node, error) {
	total, _, err := hostMemory()
	if err != nil {
		return nil, err
	}
	if cfg.MaxVCPUs == 0 {
		cfg.MaxVCPUs = max(4, 2*runtime.NumCPU())
	}
	if cfg.ReserveBytes == 0 {
		cfg.ReserveBytes = min(total/10, 2<<30)
	}
	if cfg.MaxWarm == 0 {
		cfg.MaxWarm = 4 * cfg.Warm
	}
	n := &node{cfg: cfg, log: cfg.Logger, machines: map[*machine]bool{}}
	n.pool = newPool(n)
	return n, nil
}

func (n *node) Sweep(ctx context.Context) error {
	swept, err := n.cfg.Driver.Sweep(ctx)
	if err != nil {
		return fmt.Errorf("remove machines of an earlier server: %w", err)
	}
	if len(swept) > 0 {
		n.log.Info("removed machines of an earlier server", "machines", len(swept))
	}
	return nil
}

func (n *node) Capacity() Capacity {
	total, _, err := hostMemory()
	if err != nil {
		n.log.Warn("read the host's memory", "err", err)
	}
	return Capacity{VCPUs: runtime.NumCPU(), MaxVCPUs: n.cfg.MaxVCPUs, MemoryBytes: total - n.cfg.ReserveBytes}
}

func (n *node) Start(ctx context.Context, spec Spec) (Machine, error) {
	defer n.pool.busy()()
	sz := size{vcpus: spec.VCPUs, memory: spec.MemoryBytes, disk: spec.DiskBytes}
	layers, err := n.located(spec.Layers)
	if err != nil {
		return nil, err
	}
	drives, err := n.locatedDrives(spec.Drives)
	if err != nil {
		return nil, err
	}
	m, err := n.claim(ctx, root{spec.Image, layers, drives}, sz)
	if err != nil {
		return nil, err
	}
	m.identify(spec.Identity)
	if err := m.SetPolicy(ctx, spec.Policy); err != nil {
		return nil, errors.Join(err, m.Stop(context.WithoutCancel(ctx)))
	}
	if err := n.give(ctx, m); err != nil {
		return nil, err
	}
	n.log.Debug("machine claimed", "machine", m.ID(), "session", spec.ID)
	return m, nil
}

// give marks a machine as one that holds a session.
func (n *node) give(ctx context.Context, m *machine) error {
	n.mu.Lock()
	n.machines[m] = true
	closed := n.closed
	n.mu.Unlock()
	if closed {
		return errors.Join(driver.ErrStopped, m.Stop(context.WithoutCancel(ctx)))
	}
	return nil
}

func (n *node) Keep(img image.Image, vcpus int, memoryBytes, diskBytes int64) {
	if n.cfg.Warm > 0 {
		n.pool.keep(img, size{vcpus: vcpus, memory: memoryBytes, disk: diskBytes})
	}
}

// claim returns an assembled machine: a waiting one, a bare one that is
// assembled now, or a new one.
func (n *node) claim(ctx context.Context, r root, sz size) (*machine, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if len(r.layers) == 0 && len(r.drives) == 0 {
		if m := n.pool.take(r.img, sz); m != nil {
			return m, nil
		}
	}
	if err := n.admit(); err != nil {
		return nil, err
	}
	m := n.pool.takeBare(sz)
	if m == nil {
		var err error
		if m, err = n.boot(ctx, sz); err != nil {
			return nil, err
		}
	}
	if err := n.assemble(ctx, m, r); err != nil {
		return nil, errors.Join(err, m.Stop(context.WithoutCancel(ctx)))
	}
	return m, nil
}

// machineFloor is the memory in bytes that an idle machine takes on the host
// (measured: 12–20 MB), with room for its first command.
const machineFloor = 64 << 20

// admit tells whether the host has memory for one more machine. What counts
// is what is free now: sandboxes are promised more than they use.
func (n *node) admit() error {
	_, avail, err := hostMemory()
	if err != nil {
		return err
	}
	if avail-machineFloor < n.cfg.ReserveBytes {
		return fmt.Errorf("%w: %d MiB of the host's memory are free and %d MiB are kept in reserve", ErrCapacity, avail>>20, n.cfg.ReserveBytes>>20)
	}
	return nil
}

func (n *node) add(m *machine) {
	n.mu.Lock()
	n.machines[m] = false
	n.mu.Unlock()
}

func (n *node) drop(m *machine) {
	n.mu.Lock()
	delete(n.machines, m)
	n.mu.Unlock()
	n.pool.drop(m)
}

func (n *node) Status() Status {
	s := Status{Driver: n.cfg.Driver.Name(), Pool: n.pool.status()}
	n.mu.Lock()
	defer n.mu.Unlock()
	for m, session := range n.machines {
		if session {
			s.Running++
			s.MemoryCommitted += m.size.memory
		}
	}
	if total, _, err := hostMemory(); err == nil {
		s.MemoryLimit = total - n.cfg.ReserveBytes
	}
	return s
}

// stopParallel is how many machines are ended at once.
const stopParallel = 8

func (n *node) Close(ctx context.Context) error { return n.end(ctx, true) }

func (n *node) Leave(ctx context.Context) error { return n.end(ctx, false) }

// end ends the machines that hold no session, or all.
func (n *node) end(ctx context.Context, sessions bool) error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.pool.close()
	n.mu.Lock()
	var all []*machine
	for m, session := range n.machines {
		if sessions || !session {
			all = append(all, m)
		}
	}
	n.mu.Unlock()
	g := new(errgroup.Group)
	g.SetLimit(stopParallel)
	start := time.Now()
	for _, m := range all {
		g.Go(func() error { return m.Stop(ctx) })
	}
	err := g.Wait()
	n.log.Info("node closed", "machines", len(all), "took", time.Since(start))
	return err
}
