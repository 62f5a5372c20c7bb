package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// idleBoxes are open at once while their memory is measured.
const idleBoxes = 5

func init() {
	add(bench{
		name: "memory", title: "memory of an idle sandbox that has run `true` once", unit: "MB",
		rounds: part(10), open: openMemory,
	})
}

// idle is a sandbox whose memory is measured.
type idle struct {
	pids  []int
	close func() error
}

func openMemory(ctx context.Context, r *rig, _ *scope) ([]contender, error) {
	// Without a pool, whose own sandboxes could not be told from ours.
	srv, err := r.server(ctx, 0)
	if err != nil {
		return nil, err
	}
	k := min(idleBoxes, r.opts.n)
	out := []contender{memoryOf("glovebox", k, func(ctx context.Context) (idle, error) { return idleSandbox(ctx, srv) })}
	for _, p := range r.peers {
		out = append(out, memoryOf(p.name(), k, func(ctx context.Context) (idle, error) { return idlePeer(ctx, p) }))
	}
	return out, nil
}

func idleSandbox(ctx context.Context, srv *server) (idle, error) {
	before := children(srv.cmd.Process.Pid)
	box, err := srv.create(ctx)
	if err != nil {
		return idle{}, err
	}
	found := idle{close: func() error { return srv.drop(ctx, box.Name()) }}
	if err := succeed(ctx, box, "true"); err != nil {
		return found, err
	}
	found.pids = slices.DeleteFunc(children(srv.cmd.Process.Pid), func(pid int) bool { return slices.Contains(before, pid) })
	if len(found.pids) == 0 {
		return found, errors.New("the server has no process for a new sandbox")
	}
	found.pids = descendants(found.pids)
	return found, nil
}

func idlePeer(ctx context.Context, p peer) (idle, error) {
	b, err := p.open(ctx, false, idler...)
	if err != nil {
		return idle{}, err
	}
	found := idle{close: func() error { return b.close(ctx) }}
	if err := b.exec(ctx, command{argv: []string{"true"}}); err != nil {
		return found, err
	}
	if found.pids = b.pids(); len(found.pids) == 0 {
		return found, fmt.Errorf("%s has no process for a new sandbox", p.name())
	}
	return found, nil
}

// memoryOf opens k sandboxes and tells of each what its processes take, and
// what the host has less on average.
func memoryOf(name string, k int, open func(ctx context.Context) (idle, error)) contender {
	host := "  what the host has less"
	return contender{rows: []string{name, host}, sample: func(ctx context.Context, put func(string, float64)) (err error) {
		var s scope
		defer func() { err = errors.Join(err, s.close()) }()
		before, err := available()
		if err != nil {
			return err
		}
		var opened []idle
		for range k {
			box, err := open(ctx)
			if box.close != nil {
				s.onClose(box.close)
			}
			if err != nil {
				return err
			}
			opened = append(opened, box)
		}
		after, err := available()
		if err != nil {
			return err
		}
		put(host, (before-after)/float64(k))
		for _, box := range opened {
			mb, err := pss(box.pids)
			if err != nil {
				return err
			}
			put(name, mb)
		}
		return nil
	}}
}
