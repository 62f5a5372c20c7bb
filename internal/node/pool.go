package node

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/image"
)

const (
	// coolAfter is how long an image stays warm after its last use.
	coolAfter = 10 * time.Minute
	// quietFor is how long no session may have been started before the pool
	// is refilled, so that a refill does not take the CPU from the command
	// that a new session runs first; patience is when it is refilled anyway.
	quietFor = 100 * time.Millisecond
	patience = time.Second
	// retryAfter a machine for the pool could not be made; doubled up to a minute.
	retryAfter = time.Second
)

// key of a pool of machines that are alike. An empty digest: bare ones.
type key struct {
	digest string
	size
}

type shelf struct {
	img          image.Image
	ready        []*machine
	starting     int
	target       int
	used         time.Time
	hits, misses int64
}

// pool keeps machines that wait for a session. One goroutine refills it, one
// machine at a time.
type pool struct {
	n      *node
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}

	mu      sync.Mutex
	closed  bool
	shelves map[key]*shelf
	kept    map[key]bool // never cool
	claims  int          // sessions being started now
	claimed time.Time    // when the last of them was done
}

func newPool(n *node) *pool {
	ctx, cancel := context.WithCancel(context.Background())
	p := &pool{n: n, cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1), shelves: map[key]*shelf{}, kept: map[key]bool{}}
	go p.run(ctx)
	return p
}

// busy tells the pool that a session is being started, until the function
// that it returns is called.
func (p *pool) busy() func() {
	p.mu.Lock()
	p.claims++
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		p.claims--
		p.claimed = time.Now()
		p.mu.Unlock()
		p.poke()
	}
}

func (p *pool) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// keep makes the pool hold machines for an image of a size for good.
func (p *pool) keep(img image.Image, sz size) {
	p.mu.Lock()
	p.want(img, sz)
	p.kept[key{img.Digest, sz}] = true
	p.mu.Unlock()
	p.poke()
}

// want makes the pool hold machines for an image of a size from now on.
func (p *pool) want(img image.Image, sz size) *shelf {
	k := key{img.Digest, sz}
	s := p.shelves[k]
	if s == nil {
		s = &shelf{img: img}
		p.shelves[k] = s
	}
	s.target, s.used = p.n.cfg.Warm, time.Now()
	return s
}

// take returns a waiting machine, or nil; either way the image is in demand.
func (p *pool) take(img image.Image, sz size) *machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	s := p.want(img, sz)
	if m := s.pop(); m != nil {
		s.hits++
		return m
	}
	s.misses++
	return nil
}

// takeBare returns a waiting machine without an image, or nil. One bare
// machine is kept for each size in demand: it serves any image.
func (p *pool) takeBare(sz size) *machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.n.cfg.Warm == 0 {
		return nil
	}
	s := p.want(image.Image{}, sz)
	s.target = 1
	return s.pop()
}

// pop takes the oldest machine that is still alive.
func (s *shelf) pop() *machine {
	for len(s.ready) > 0 {
		m := s.ready[0]
		s.ready = s.ready[1:]
		select {
		case <-m.Machine.Done():
		default:
			return m
		}
	}
	return nil
}

// drop takes a machine that has ended off its shelf.
func (p *pool) drop(m *machine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.shelves {
		if i := slices.Index(s.ready, m); i >= 0 {
			s.ready = slices.Delete(s.ready, i, i+1)
			p.poke()
		}
	}
}

// run refills the pool until ctx ends.
func (p *pool) run(ctx context.Context) {
	defer close(p.done)
	wait, backoff := time.Duration(0), retryAfter
	for {
		if !p.sleep(ctx, wait) {
			return
		}
		p.discard(ctx, p.cool())
		k, s, quiet := p.next()
		if s == nil {
			wait, backoff = coolAfter, retryAfter
			continue
		}
		if quiet > 0 {
			wait = quiet
			continue
		}
		wait = 0
		victim, ok := p.evict(s)
		if !ok {
			continue
		}
		p.discard(ctx, []*machine{victim})
		if err := p.fill(ctx, k, s); err != nil && ctx.Err() == nil {
			level := p.n.log.Warn
			if errors.Is(err, ErrCapacity) {
				level = p.n.log.Debug
			}
			level("make machine for the pool", "image", s.img.Reference, "err", err, "retry", backoff)
			wait, backoff = backoff, min(2*backoff, time.Minute)
		}
	}
}

// sleep waits for d, for a change (where d is the long wait for nothing to
// do, or short), or for the end (then false).
func (p *pool) sleep(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-p.wake:
		if d < coolAfter { // a retry or a pause for quiet is not cut short
			select {
			case <-ctx.Done():
				return false
			case <-t.C:
			}
		}
	}
	return true
}

// cool takes what has not been used for long off the shelves.
func (p *pool) cool() (idle []*machine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, s := range p.shelves {
		if time.Since(s.used) < coolAfter || p.kept[k] {
			continue
		}
		idle = append(idle, s.ready...)
		if s.ready = nil; s.starting == 0 {
			delete(p.shelves, k)
		}
	}
	return idle
}

// next picks the emptiest shelf that lacks a machine, and how long to wait
// for quiet before it is filled.
func (p *pool) next() (key, *shelf, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var best *shelf
	var at key
	for k, s := range p.shelves {
		if len(s.ready)+s.starting >= s.target {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(len(s.ready), len(best.ready)), best.used.Compare(s.used)) < 0 {
			best, at = s, k
		}
	}
	if best == nil {
		return key{}, nil, 0
	}
	idle := time.Since(p.claimed)
	if (p.claims > 0 || idle < quietFor) && time.Since(best.used) < patience {
		return at, best, quietFor
	}
	return at, best, 0
}

// evict makes room for one more machine where the pool is at its bound: the
// shelf that was used longest ago gives one and, so that the two do not go on
// robbing each other, wants one less until it is used again. False: there is
// no room, and shelf to wants no more.
func (p *pool) evict(to *shelf) (victim *machine, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := 0
	oldest := to
	for _, s := range p.shelves {
		total += len(s.ready)
		if len(s.ready) > 0 && s.used.Before(oldest.used) {
			oldest = s
		}
	}
	if total < p.n.cfg.MaxWarm {
		return nil, true
	}
	if oldest == to {
		to.target = len(to.ready)
		return nil, false
	}
	victim = oldest.pop()
	oldest.target = len(oldest.ready)
	return victim, true
}

func (p *pool) discard(ctx context.Context, idle []*machine) {
	for _, m := range idle {
		if m == nil {
			continue
		}
		if err := m.Stop(ctx); err != nil && ctx.Err() == nil {
			p.n.log.Warn("stop idle machine of the pool", "machine", m.ID(), "err", err)
		}
	}
}

// fill makes one machine for a shelf.
func (p *pool) fill(ctx context.Context, k key, s *shelf) error {
	p.mu.Lock()
	s.starting++
	p.mu.Unlock()
	m, err := p.make(ctx, k, s.img)
	p.mu.Lock()
	defer p.mu.Unlock()
	s.starting--
	if err != nil {
		return err
	}
	s.ready = append(s.ready, m)
	return nil
}

func (p *pool) make(ctx context.Context, k key, img image.Image) (*machine, error) {
	if err := p.n.admit(); err != nil {
		return nil, err
	}
	m, err := p.n.boot(ctx, k.size)
	if err != nil {
		return nil, err
	}
	if k.digest != "" {
		if err := p.n.assemble(ctx, m, root{img: img}); err != nil {
			return nil, errors.Join(err, m.Stop(context.WithoutCancel(ctx)))
		}
	}
	return m, nil
}

func (p *pool) status() []PoolStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []PoolStatus{}
	for k, s := range p.shelves {
		name := s.img.Reference
		if k.digest == "" {
			name = "(bare)"
		}
		out = append(out, PoolStatus{
			Image: name, VCPUs: k.vcpus, MemoryBytes: k.memory, Ready: len(s.ready),
			Starting: s.starting, Target: s.target, Hits: s.hits, Misses: s.misses,
		})
	}
	slices.SortFunc(out, func(a, b PoolStatus) int {
		return cmp.Or(cmp.Compare(a.Image, b.Image), cmp.Compare(a.VCPUs, b.VCPUs), cmp.Compare(a.MemoryBytes, b.MemoryBytes))
	})
	return out
}

// close ends the refilling. The machines that wait are the node's to stop.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	<-p.done
}
