package netstack

import (
	"context"
	"net/netip"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

// Limits of one sandbox, so that none can starve the host.
const (
	maxTCP   = 4096 // connections outward, in dialling or open
	maxUDP   = 1024 // sessions
	maxDials = 256  // TCP connections in dialling; more wait with the guest
	// plainFlows is how many connections may grow their buffers freely.
	plainFlows = 32
)

// flow is one connection or UDP session outward.
type flow struct {
	proto string
	dst   netip.AddrPort

	ctx    context.Context // ends when the flow is aborted
	cancel context.CancelFunc

	// verdict is written while flows.policy is held for reading. Its
	// Resolved shrinks to the server name once the guest has named it.
	verdict egress.Verdict
	// raw: its bytes pass as they are. Written like verdict.
	raw bool
	// server is the TLS server name, where the connection is to be opened.
	server string // written once, before it is

	meter *egress.Meter // nil until the flow is allowed; its goroutine's own

	mu      sync.Mutex // guards what follows
	aborted bool
	onAbort func()
	why     string // the flow ended, where it was not its peers' wish
}

// because notes why the flow ends; the first reason counts.
func (f *flow) because(why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.why == "" {
		f.why = why
	}
}

func (f *flow) reason() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.why
}

// whenAborted sets what resets the flow's connections, in place of what was
// set before; it is called at once when the flow has been aborted already.
func (f *flow) whenAborted(reset func()) {
	f.mu.Lock()
	f.onAbort = reset
	aborted := f.aborted
	f.mu.Unlock()
	if aborted {
		reset()
	}
}

// abort resets the flow; its goroutines end by that.
func (f *flow) abort() {
	f.mu.Lock()
	first, reset := !f.aborted, f.onAbort
	f.aborted = true
	f.mu.Unlock()
	f.cancel()
	if first && reset != nil {
		reset()
	}
}

// flows are all flows of a stack.
type flows struct {
	// policy orders verdicts and policies: a verdict is given and stored
	// under the read lock; under the write lock a new policy comes in force
	// and all verdicts are looked over. Taken before mu.
	policy sync.RWMutex

	mu   sync.Mutex // guards what follows
	open map[*flow]struct{}
	n    map[string]int // by protocol
}

func newFlows() *flows {
	return &flows{open: map[*flow]struct{}{}, n: map[string]int{}}
}

// add registers a flow, or returns nil when proto has limit of them.
func (fs *flows) add(ctx context.Context, proto string, dst netip.AddrPort, limit int) *flow {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.n[proto] >= limit {
		return nil
	}
	f := &flow{proto: proto, dst: dst}
	f.ctx, f.cancel = context.WithCancel(ctx)
	fs.open[f] = struct{}{}
	fs.n[proto]++
	return f
}

func (fs *flows) remove(f *flow) {
	f.cancel()
	f.meter.End(f.reason())
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.open, f)
	fs.n[f.proto]--
}

func (fs *flows) count(proto string) int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.n[proto]
}

// judged stores the verdict on f.
func (fs *flows) judged(f *flow, judge func() egress.Verdict) egress.Verdict {
	fs.policy.RLock()
	defer fs.policy.RUnlock()
	f.verdict = judge()
	return f.verdict
}

// settle runs decide, which may write to a flow what verdicts are kept with.
func (fs *flows) settle(decide func() error) error {
	fs.policy.RLock()
	defer fs.policy.RUnlock()
	return decide()
}

// verdictOf is f's verdict as it is now, and whether f passes unseen.
func (fs *flows) verdictOf(f *flow) (v egress.Verdict, raw bool) {
	fs.policy.RLock()
	defer fs.policy.RUnlock()
	return f.verdict, f.raw
}

// recheck runs change, then aborts the allowed flows that keep refuses.
func (fs *flows) recheck(change func(), keep func(*flow) bool) {
	fs.policy.Lock()
	change()
	var cut []*flow
	for _, f := range fs.list() {
		if f.verdict.Allowed && !keep(f) {
			cut = append(cut, f)
		}
	}
	fs.policy.Unlock()
	for _, f := range cut {
		f.because("cut by a new network policy")
		f.abort()
	}
}

func (fs *flows) abortAll() {
	for _, f := range fs.list() {
		f.because("the sandbox stopped")
		f.abort()
	}
}

func (fs *flows) list() []*flow {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	out := make([]*flow, 0, len(fs.open))
	for f := range fs.open {
		out = append(out, f)
	}
	return out
}

// bufferSize is what a new connection may buffer in each direction when n
// are open, or 0 for the default. All together stay near 1 GiB even if a
// guest makes every peer stall.
func bufferSize(n int) int64 {
	switch {
	case n <= plainFlows:
		return 0
	case n <= 512:
		return 512 << 10
	}
	return 64 << 10
}
