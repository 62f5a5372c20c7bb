package cli

import (
	"context"
	"errors"
	"log/slog"

	"github.com/glovebox-dev/glovebox/client"
	"github.com/glovebox-dev/glovebox/internal/daemon"
)

// startLocal opens a server within this process, for one run. It has a data
// directory of its own below the given one, with nothing but the images in it,
// so that any number of runs go on beside each other and beside a server.
func (a *app) startLocal(ctx context.Context, ref string) (*client.Client, func() error, error) {
	dir, err := a.newRunDir(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := a.lendImage(ctx, dir.path, ref); err != nil {
		return nil, nil, errors.Join(err, dir.remove())
	}
	d, err := a.openOneShot(ctx, dir.path)
	if err != nil {
		return nil, nil, errors.Join(err, dir.remove())
	}
	listener := newPipeListener()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- d.Serve(serving, listener, nil) }()
	release := func() error {
		after, cancel := afterwards(ctx)
		defer cancel()
		stop()
		return errors.Join(<-served, d.Close(after), dir.remove())
	}
	c, err := a.clientOver(listener.dial, d.Token())
	if err != nil {
		return nil, nil, errors.Join(err, release())
	}
	return c, release, nil
}

// openOneShot opens a data directory without a warm pool and without previews.
// Opening it also ends what an earlier process left running there.
func (a *app) openOneShot(ctx context.Context, dir string) (*daemon.Daemon, error) {
	deny, err := readDenyList("$"+envDeny, a.getenv(envDeny))
	if err != nil {
		return nil, err
	}
	return daemon.Open(ctx, daemon.Config{
		DataDir:     dir,
		Logger:      slog.New(slog.NewTextHandler(a.errOut, &slog.HandlerOptions{Level: slog.LevelError})),
		DNS:         a.getenv(envDNS),
		NetworkDeny: deny,
		OneShot:     true,
	})
}

// lendImage links the user's images into the data directory at dir. The one
// that is asked for is made or fetched first if it is missing.
func (a *app) lendImage(ctx context.Context, dir, ref string) error {
	from, err := a.openImages(a.dataDir)
	if err != nil {
		return err
	}
	defer from.Close()
	if _, err := a.ensureImage(ctx, from, ref); err != nil {
		return err
	}
	to, err := a.openImages(dir)
	if err != nil {
		return err
	}
	defer to.Close()
	return to.Link(a.dataDir)
}
