package main

import (
	"context"
	"errors"
	"time"
)

// defaultWarm is how many sandboxes wait in the pool of a server as it comes.
const defaultWarm = 2

const (
	fromPool    = "glovebox from the pool"
	createShare = "  of that, the create call"
)

func init() {
	add(bench{
		name: "create", title: "create a sandbox that lasts → its first command, `true`, has ended", unit: "ms",
		rounds: times(1), open: openCreate,
		aims: []aim{
			{row: fromPool, most: 25},
			{row: fromPool, most: 0.1, over: "stock gVisor"},
		},
	})
	add(bench{
		name: "oneshot", title: "one command in a sandbox of its own, start to removal, from the command line", unit: "ms",
		rounds: times(1), open: openOneShot,
	})
}

func openCreate(ctx context.Context, r *rig, s *scope) ([]contender, error) {
	pool, err := r.server(ctx, defaultWarm)
	if err != nil {
		return nil, err
	}
	cold, err := r.server(ctx, 0)
	if err != nil {
		return nil, err
	}
	out := []contender{
		created(pool, fromPool),
		createdByWire(pool, s),
		created(cold, "glovebox without a pool"),
	}
	for _, p := range r.peers {
		if _, one := p.(bwrap); one {
			out = append(out, timed("bwrap, does not last", func(ctx context.Context) error { return p.run(ctx, command{argv: []string{"true"}}) }))
			continue
		}
		out = append(out, contender{rows: []string{p.name()}, sample: func(ctx context.Context, put func(string, float64)) error {
			start := time.Now()
			b, err := p.open(ctx, false, idler...)
			if err != nil {
				return err
			}
			err = b.exec(ctx, command{argv: []string{"true"}})
			put(p.name(), millis(time.Since(start)))
			return errors.Join(err, b.close(ctx))
		}})
	}
	return out, nil
}

// created takes the create call's share apart.
func created(srv *server, row string) contender {
	return contender{rows: []string{row, createShare}, sample: func(ctx context.Context, put func(string, float64)) error {
		start := time.Now()
		box, err := srv.create(ctx)
		if err != nil {
			return err
		}
		put(createShare, millis(time.Since(start)))
		err = succeed(ctx, box, "true")
		put(row, millis(time.Since(start)))
		return errors.Join(err, srv.drop(ctx, box.Name()))
	}}
}

func createdByWire(srv *server, s *scope) contender {
	w := srv.wire(s)
	body := commandBody("true")
	row := fromPool + ", HTTP alone"
	return contender{rows: []string{row}, sample: func(ctx context.Context, put func(string, float64)) error {
		start := time.Now()
		session, name, err := w.create(ctx)
		if err != nil {
			return err
		}
		err = w.command(ctx, session, body)
		put(row, millis(time.Since(start)))
		return errors.Join(err, srv.drop(ctx, name))
	}}
}

func openOneShot(_ context.Context, r *rig, _ *scope) ([]contender, error) {
	dir, err := r.dataDir("data-run")
	if err != nil {
		return nil, err
	}
	out := []contender{timed("glovebox run, without a server", func(ctx context.Context) error {
		return command{}.host(ctx, r.opts.bin, "run", "--data-dir", dir, "--", "true")
	})}
	for _, p := range r.peers {
		out = append(out, timed(p.name(), func(ctx context.Context) error { return p.run(ctx, command{argv: []string{"true"}}) }))
	}
	return out, nil
}
