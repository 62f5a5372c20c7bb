package fakecontrol

import (
	"context"

	"github.com/glovebox-dev/glovebox/api"
)

// NetworkLog is the same three records in every session, of which the first
// is no longer kept; a wait for more ends with the session or ctx.
func (p *Project) NetworkLog(ctx context.Context, id string, since int64, wait bool) (*api.NetworkLog, error) {
	s, err := p.session(id, false)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	over := s.info.Status.Over()
	p.mu.Unlock()
	ms := int64(20)
	all := []api.NetworkRecord{
		{Seq: 2, Time: Epoch, Event: api.NetworkDecision, Verdict: api.VerdictAllow, Protocol: "tcp", Name: "example.com", Address: "192.0.2.1", Port: 443, Rule: "allow example.com"},
		{Seq: 3, Time: Epoch, Event: api.NetworkEnd, Of: 2, Verdict: api.VerdictAllow, Protocol: "tcp", Name: "example.com", Address: "192.0.2.1", Port: 443, Rule: "allow example.com",
			Transfer: &api.NetworkTransfer{Ingress: 5, Egress: 7}, DurationMs: &ms},
		{Seq: 4, Time: Epoch, Event: api.NetworkDecision, Verdict: api.VerdictDeny, Protocol: "dns", Name: "evil.example", Query: "TXT", Rule: "no rule", Reason: "no entry of allow matches the name \"evil.example\""},
	}
	out := &api.NetworkLog{SessionID: id, Records: []api.NetworkRecord{}, Next: 4, Ended: over}
	if since < 1 {
		out.Dropped = 1 - since
	}
	for _, r := range all {
		if r.Seq > since {
			out.Records = append(out.Records, r)
		}
	}
	if wait && len(out.Records) == 0 && !over {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return out, nil
}

// NetworkSummary fits NetworkLog.
func (p *Project) NetworkSummary(_ context.Context, id string) (*api.NetworkSummary, error) {
	if _, err := p.session(id, false); err != nil {
		return nil, err
	}
	return &api.NetworkSummary{SessionID: id, Transfer: api.NetworkTransfer{Ingress: 5, Egress: 7}, Sums: []api.NetworkSum{
		{Name: "example.com", Lookups: 1, Answered: true, Connections: 1, Transfer: api.NetworkTransfer{Ingress: 5, Egress: 7}},
		{Name: "evil.example", Refused: 1},
	}}, nil
}
