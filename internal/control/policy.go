package control

import (
	"context"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/egress"
	"github.com/glovebox-dev/glovebox/internal/node"
)

// parsePolicy checks a policy; nil is allow-all.
func parsePolicy(p *api.NetworkPolicy) (egress.Policy, error) {
	if p == nil {
		return egress.AllowAll(), nil
	}
	return egress.Parse(*p)
}

// SetNetworkPolicy replaces the policy of a running session. A bad one
// changes nothing. The sandbox's own, for later sessions, stays.
func (p *Project) SetNetworkPolicy(ctx context.Context, id string, policy api.NetworkPolicy) (*api.Session, error) {
	parsed, err := egress.Parse(policy)
	if err != nil {
		return nil, err
	}
	s, err := p.running(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.setPolicy(ctx, &policy, parsed); err != nil {
		return nil, err
	}
	view := sessionView(s.record())
	return &view, nil
}

// setPolicy acts on the machine first, so that no answer or record speaks of
// a policy that is not in force.
func (s *session) setPolicy(ctx context.Context, policy *api.NetworkPolicy, parsed egress.Policy) error {
	s.policyMu.Lock() // the last to act is the last to be recorded
	defer s.policyMu.Unlock()
	m := s.liveMachine()
	if err := m.SetPolicy(ctx, parsed); err != nil {
		return s.machineError(ctx, m, "set network policy", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.NetworkPolicy = policy
	if s.ending {
		return nil // recorded with the end
	}
	if err := s.save(ctx); err != nil {
		return internal("record network policy of session "+s.id, err)
	}
	return nil
}

// liveMachine of a session that was running a moment ago.
func (s *session) liveMachine() node.Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine
}
