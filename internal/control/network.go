package control

import (
	"context"
	"sync"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/egress"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// keptRecords bounds what the logs and sums of all sessions that are over may
// hold, in records of some hundred bytes; the oldest session gives way.
const keptRecords = 32 << 10

// networks are the logs and sums of sessions that are over, as long as the
// server lives.
type networks struct {
	mu    sync.Mutex // guards what follows
	byID  map[string]endedNetwork
	order []string // oldest first
	size  int      // in records
}

type endedNetwork struct {
	page    egress.Page
	summary egress.Summary
}

func (e endedNetwork) size() int { return 1 + len(e.page.Records) + len(e.summary.Sums) }

func (n *networks) keep(id string, e endedNetwork) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byID == nil {
		n.byID = map[string]endedNetwork{}
	}
	n.byID[id] = e
	n.order = append(n.order, id)
	n.size += e.size()
	for n.size > keptRecords && len(n.order) > 1 {
		n.size -= n.byID[n.order[0]].size()
		delete(n.byID, n.order[0])
		n.order = n.order[1:]
	}
}

func (n *networks) get(id string) (endedNetwork, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e, ok := n.byID[id]
	return e, ok
}

// keepNetwork takes what is known of the network of a machine that has ended,
// also by itself: then nothing else tells its bytes.
func (s *session) keepNetwork(m node.Machine, usage *store.Usage) {
	page, err := m.NetworkLog(s.ctx, 0, false)
	var summary egress.Summary
	if err == nil {
		summary, err = m.NetworkSummary(s.ctx)
	}
	if err != nil {
		s.c.log.Warn("keep network log", "session", s.id, "err", err)
		return
	}
	page.Closed = true
	usage.IngressBytes, usage.EgressBytes = int64(summary.In), int64(summary.Out)
	s.c.networks.keep(s.id, endedNetwork{page, summary})
}

// network finds the machine of a session or, where that is over, what is kept
// of its network.
func (p *Project) network(ctx context.Context, id string) (node.Machine, endedNetwork, error) {
	s, _, err := p.find(ctx, id)
	if err != nil {
		return nil, endedNetwork{}, err
	}
	if s != nil {
		select {
		case <-s.started:
		case <-ctx.Done():
			return nil, endedNetwork{}, ctx.Err()
		}
		if m := s.liveMachine(); m != nil {
			return m, endedNetwork{}, nil
		}
	}
	if e, ok := p.c.networks.get(id); ok {
		return nil, e, nil
	}
	return nil, endedNetwork{}, &api.Error{Code: api.CodeNotFound,
		Message: "the network log of session " + id + " is not kept: the session never ran, other sessions that ended later took its place, or the server was restarted"}
}

// NetworkLog returns the records of a session's network log after number
// since; with wait it waits for one where there is none yet, or for the end.
func (p *Project) NetworkLog(ctx context.Context, id string, since int64, wait bool) (*api.NetworkLog, error) {
	m, ended, err := p.network(ctx, id)
	if err != nil {
		return nil, err
	}
	page := ended.since(uint64(since))
	if m != nil {
		if page, err = m.NetworkLog(ctx, uint64(since), wait); err != nil {
			return nil, err
		}
	}
	return logView(id, page), nil
}

// since is egress.Log.Since of a log that is over.
func (e endedNetwork) since(seq uint64) egress.Page {
	p := e.page
	first := p.Last - uint64(len(p.Records)) + 1
	if seq > p.Last {
		seq = 0
	}
	switch {
	case seq == p.Last:
		p.Records, p.Dropped = nil, 0
	case seq >= first:
		p.Records, p.Dropped = p.Records[seq-first+1:], 0
	default:
		p.Dropped = first - seq - 1
	}
	return p
}

// NetworkSummary returns what a session has done in the network.
func (p *Project) NetworkSummary(ctx context.Context, id string) (*api.NetworkSummary, error) {
	m, ended, err := p.network(ctx, id)
	if err != nil {
		return nil, err
	}
	out := &api.NetworkSummary{SessionID: id, Sums: []api.NetworkSum{}}
	sums := ended.summary
	if m != nil {
		if sums, err = m.NetworkSummary(ctx); err != nil {
			return nil, err
		}
	}
	out.Transfer = transferView(sums.In, sums.Out)
	for _, s := range sums.Sums {
		out.Sums = append(out.Sums, sumView(s))
	}
	if sums.Other != nil {
		other := sumView(*sums.Other)
		out.Other = &other
	}
	return out, nil
}

func transferView(in, out uint64) api.NetworkTransfer {
	return api.NetworkTransfer{Ingress: int64(in), Egress: int64(out)}
}

func sumView(s egress.Sum) api.NetworkSum {
	out := api.NetworkSum{
		Name: s.Name, Lookups: int64(s.Lookups), Answered: s.Answered, Connections: int64(s.Connections),
		Datagrams: int64(s.Datagrams), Refused: int64(s.Refused), Transfer: transferView(s.In, s.Out),
	}
	if s.Addr.IsValid() {
		out.Address = s.Addr.String()
	}
	return out
}

func logView(id string, p egress.Page) *api.NetworkLog {
	out := &api.NetworkLog{SessionID: id, Records: make([]api.NetworkRecord, 0, len(p.Records)), Dropped: int64(p.Dropped), Next: int64(p.Last), Ended: p.Closed}
	for _, d := range p.Records {
		out.Records = append(out.Records, recordView(d))
	}
	return out
}

func recordView(d egress.Decision) api.NetworkRecord {
	r := api.NetworkRecord{
		Seq: int64(d.Seq), Time: d.Time.UnixMilli(), Event: api.NetworkDecision, Of: int64(d.Of), Verdict: api.VerdictDeny,
		Protocol: d.Proto, Name: d.Name, Aliases: d.Aliases, Port: int(d.Addr.Port()), Query: d.Query,
		Method: d.Method, Path: d.Path, Status: d.Status, Rule: d.Rule, Reason: d.Reason,
	}
	if d.Allowed {
		r.Verdict = api.VerdictAllow
	}
	if d.Addr.IsValid() {
		r.Address = d.Addr.Addr().String()
	}
	if d.Of != 0 {
		transfer, ms := transferView(d.In, d.Out), d.Duration.Milliseconds()
		r.Event, r.Transfer, r.DurationMs = api.NetworkEnd, &transfer, &ms
	}
	return r
}
