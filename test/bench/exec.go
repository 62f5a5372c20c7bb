package main

import "context"

func init() {
	add(bench{
		name: "exec", title: "`true` in an open sandbox", unit: "ms", rounds: times(5),
		open: openExec("true"), aims: []aim{{row: "glovebox", most: 14}},
	})
	add(bench{
		name: "python", title: "`python3 -c 'print(1)'` in an open sandbox", unit: "ms", rounds: times(2),
		open: openExec("python3", "-c", "print(1)"),
	})
}

func openExec(argv ...string) func(context.Context, *rig, *scope) ([]contender, error) {
	return func(ctx context.Context, r *rig, s *scope) ([]contender, error) {
		srv, err := r.server(ctx, defaultWarm)
		if err != nil {
			return nil, err
		}
		box, err := srv.sandbox(ctx, s)
		if err != nil {
			return nil, err
		}
		w, body, session := srv.wire(s), commandBody(argv...), box.Session().ID
		out := []contender{
			timed("glovebox", func(ctx context.Context) error { return succeed(ctx, box, argv...) }),
			timed("glovebox, HTTP alone", func(ctx context.Context) error { return w.command(ctx, session, body) }),
			timed("  an HTTP request that does nothing", w.health),
		}
		boxes, err := openAll(ctx, r, s, false, idler...)
		if err != nil {
			return nil, err
		}
		for i, p := range r.peers {
			out = append(out, timed(execName(p), func(ctx context.Context) error { return boxes[i].exec(ctx, command{argv: argv}) }))
		}
		return out, nil
	}
}

// execName says what a peer does for a further command.
func execName(p peer) string {
	if _, one := p.(bwrap); one {
		return "bwrap, a new one"
	}
	return p.name()
}

// openAll opens one sandbox of each peer, in the order of r.peers; s closes
// them.
func openAll(ctx context.Context, r *rig, s *scope, hostNet bool, argv ...string) ([]peerBox, error) {
	var out []peerBox
	for _, p := range r.peers {
		b, err := p.open(ctx, hostNet, argv...)
		if err != nil {
			return nil, err
		}
		s.onClose(func() error { return b.close(ctx) })
		out = append(out, b)
	}
	return out, nil
}
