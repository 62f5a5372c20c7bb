package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/glovebox-dev/glovebox/internal/intercept"
)

// machineState is Machine.State.
type machineState struct {
	Machine string `json:"machine"` // id of the driver's machine
	Secret  []byte `json:"secret"`  // of its agent
	// CA with its key. It is made with the machine, so that a policy that needs
	// it later does not change the state.
	CA json.RawMessage `json:"ca"`
}

// State implements Machine.
func (m *machine) State() json.RawMessage {
	ca, err := m.ca.Marshal()
	if err != nil {
		panic(err) // a key that we have made
	}
	b, err := json.Marshal(machineState{m.ID(), m.secret[:], ca})
	if err != nil {
		panic(err) // plain data
	}
	return b
}

// Adopt implements Node.
func (n *node) Adopt(ctx context.Context, spec Spec, state json.RawMessage) (_ Machine, err error) {
	var st machineState
	if err := json.Unmarshal(state, &st); err != nil {
		return nil, fmt.Errorf("read the state of the machine of session %s: %w", spec.ID, err)
	}
	m := &machine{log: n.log, snaps: n.cfg.Snapshots, done: make(chan struct{}),
		size: size{vcpus: spec.VCPUs, memory: spec.MemoryBytes, disk: spec.DiskBytes}}
	if copy(m.secret[:], st.Secret) != len(m.secret) {
		return nil, fmt.Errorf("read the state of the machine of session %s: its secret is of %d bytes", spec.ID, len(st.Secret))
	}
	if m.ca, err = intercept.ParseCA(st.CA); err != nil {
		return nil, fmt.Errorf("read the state of the machine of session %s: %w", spec.ID, err)
	}
	m.root.img = spec.Image
	if m.root.layers, err = n.located(spec.Layers); err != nil {
		return nil, err
	}
	if m.root.drives, err = n.locatedDrives(spec.Drives); err != nil {
		return nil, err
	}
	a, err := n.assembly(m.root)
	if err != nil {
		return nil, fmt.Errorf("find what session %s was assembled from: %w", spec.ID, err)
	}
	m.alsoMade(made(a))
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	if m.Machine, err = n.cfg.Driver.Adopt(ctx, st.Machine); err != nil {
		return nil, err
	}
	n.add(m)
	if err := n.connect(ctx, m, spec.Policy); err != nil {
		return nil, errors.Join(err, m.Stop(context.WithoutCancel(ctx)))
	}
	if err := m.agent.Takeover(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("take over agent of machine %s: %w", m.ID(), err), m.Stop(context.WithoutCancel(ctx)))
	}
	m.identify(spec.Identity)
	if err := m.SetPolicy(ctx, spec.Policy); err != nil { // for what the guest needs of it
		return nil, errors.Join(err, m.Stop(context.WithoutCancel(ctx)))
	}
	if err := n.give(ctx, m); err != nil {
		return nil, err
	}
	n.log.Debug("machine taken over", "machine", m.ID(), "session", spec.ID)
	return m, nil
}
