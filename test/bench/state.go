package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
)

// manyFiles makes so many files of about 3 KB, 25 in a directory.
const manyFiles = `
import os, sys
b = os.urandom(1 << 20)
for i in range(int(sys.argv[1])):
    d = 'f/%d' % (i // 25)
    if i % 25 == 0:
        os.makedirs(d)
    k = i * 7919 % 1000000
    f = os.open('%s/%d' % (d, i), os.O_CREAT | os.O_WRONLY)
    os.write(f, b[k:k + 2048 + k % 2048])
    os.close(f)
`

// oneFile makes one of so many MiB.
const oneFile = `
import os, sys
with open('big', 'wb') as f:
    for _ in range(int(sys.argv[1])):
        f.write(os.urandom(1 << 20))
`

func init() {
	for _, l := range []struct {
		name, title, program string
		n                    int
		rounds               func(int) int
	}{
		{"state", "10 files", manyFiles, 10, part(2)},
		{"state5k", "5,000 files, 15 MB", manyFiles, 5000, part(4)},
		{"state100k", "100,000 files, 300 MB", manyFiles, 100_000, part(20)},
		{"state1g", "one file of 1 GiB", oneFile, 1024, part(20)},
	} {
		add(bench{name: l.name, title: "what lasts, with " + l.title + " written", unit: "ms", rounds: l.rounds,
			open: func(ctx context.Context, r *rig, _ *scope) ([]contender, error) {
				srv, err := r.server(ctx, defaultWarm)
				if err != nil {
					return nil, err
				}
				return []contender{lasting(srv, l.program, l.n)}, nil
			}})
	}
}

const (
	stopRow   = "stop"
	resumeRow = "resume → its first command, `true`, has ended"
	forkRow   = "fork while it runs → the copy's first command"
	fromRow   = "create from the snapshot → its first command"
)

// lasting fills a sandbox, and forks, stops and resumes it and makes another
// of its snapshot.
func lasting(srv *server, program string, n int) contender {
	return contender{rows: []string{stopRow, resumeRow, forkRow, fromRow}, sample: func(ctx context.Context, put func(string, float64)) (err error) {
		yes := true
		box, err := srv.client.CreateSandbox(ctx, api.CreateSandboxRequest{Persistent: &yes})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, srv.forget(ctx, box.Name())) }()
		if err := succeed(ctx, box, "python3", "-c", program, strconv.Itoa(n)); err != nil {
			return err
		}
		// used times how long a sandbox takes to its first command.
		used := func(row string, get func() (*client.Sandbox, error)) error {
			start := time.Now()
			other, err := get()
			if err != nil {
				return err
			}
			err = succeed(ctx, other, "true")
			put(row, millis(time.Since(start)))
			if other.Name() != box.Name() {
				err = errors.Join(err, srv.forget(ctx, other.Name()))
			}
			return err
		}
		no := false
		if err := used(forkRow, func() (*client.Sandbox, error) {
			return srv.client.ForkSandbox(ctx, box.Name(), api.ForkSandboxRequest{Persistent: &no})
		}); err != nil {
			return err
		}
		start := time.Now()
		stopped, err := box.Stop(ctx)
		if err != nil {
			return err
		}
		put(stopRow, millis(time.Since(start)))
		if stopped.Snapshot == nil {
			return fmt.Errorf("nothing was kept: %s", stopped.Session.Reason)
		}
		if err := used(fromRow, func() (*client.Sandbox, error) {
			return srv.client.CreateSandbox(ctx, api.CreateSandboxRequest{Persistent: &no, Source: &api.Source{Type: api.SourceSnapshot, SnapshotID: stopped.Snapshot.ID}})
		}); err != nil {
			return err
		}
		return used(resumeRow, func() (*client.Sandbox, error) { return srv.client.ResumeSandbox(ctx, box.Name()) })
	}}
}

// forget deletes a sandbox with its snapshots, also when ctx has ended.
func (s *server) forget(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return s.client.DeleteSandbox(ctx, name, true)
}
