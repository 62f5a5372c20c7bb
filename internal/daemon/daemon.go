// Package daemon puts the parts of a Glovebox server together: store, images,
// driver, node, control and HTTP, over one data directory.
package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/control"
	"github.com/glovebox-dev/glovebox/internal/egress"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/oidc"
	"github.com/glovebox-dev/glovebox/internal/server"
	"github.com/glovebox-dev/glovebox/internal/snapshot"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Config of a Daemon. DataDir is required.
type Config struct {
	// DataDir holds everything that lasts. Made if missing; one server at a
	// time.
	DataDir string
	// PublicURL is where clients reach the API, if not at the listener's own
	// address.
	PublicURL string
	// PreviewDomain, if not empty, is the domain below which every port has
	// its https address; else ports are at http://SUBDOMAIN.localhost:PORT.
	PreviewDomain string
	// Certificate of the secure listener of Serve; nil: there is none.
	Certificate *server.Certificate
	// FirstToken may use any project; empty: there is none.
	FirstToken string
	// DNS servers, as in GLOVEBOX_DNS; empty: the host's.
	DNS string
	// NetworkDeny is what no policy of a sandbox opens.
	NetworkDeny egress.DenyList
	// EgressCAFile, if not empty, is a PEM file of authorities that destinations
	// of opened connections are verified by, besides the system's.
	EgressCAFile string
	// Limits of what sandboxes may ask for; zero: api.DefaultLimits.
	Limits api.Limits
	// ReserveBytes of the data directory's file system stay free: images,
	// snapshots, uploads and new sandboxes are refused before, and only the
	// disks of sandboxes that stop may touch it. 0: none.
	ReserveBytes int64
	// Warm is how many machines wait for each image in demand.
	Warm int
	// OneShot serves one command of the CLI: no warm machines, no socket in
	// the data directory, no default image made unasked.
	OneShot bool
	// Version of the program, for the status.
	Version string
	Logger  *slog.Logger
}

// DefaultWarm is Config.Warm where nobody says otherwise.
const DefaultWarm = 2

// Daemon is a server that is open. Serve it, then Close it.
type Daemon struct {
	cfg       Config
	log       *slog.Logger
	token     string // for this machine's root, and for OneShot
	ready     *readiness
	store     store.Store
	images    *image.Store
	snapshots *snapshot.Store
	node      node.Node
	tokens    *oidc.Issuer
	control   *control.Control

	mu      sync.Mutex
	public  *url.URL // where previews are reached; set by Serve
	address string   // of the listener, as a URL; set by Serve
	closers []closer
}

// closer undoes one step of Open.
type closer struct {
	what  string
	close func(context.Context) error
}

// Open takes the data directory and starts everything but the listeners. What
// an earlier, dead server left running is taken over, or, by a OneShot, ended.
// On error nothing stays.
func Open(ctx context.Context, cfg Config) (_ *Daemon, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	d := &Daemon{cfg: cfg, log: cfg.Logger, token: cmp.Or(cfg.FirstToken, "local_"+rand.Text()), ready: newReadiness()}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close(context.WithoutCancel(ctx)))
		}
	}()
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	lock, err := lockDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	d.onClose("data directory", func(context.Context) error { return lock.Close() })
	if err := d.openStores(ctx); err != nil {
		return nil, err
	}
	if err := d.openNode(); err != nil {
		return nil, err
	}
	if err := d.openControl(ctx); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Daemon) onClose(what string, f func(context.Context) error) {
	d.closers = append(d.closers, closer{what, f})
}

// Close ends every sandbox, waits until nothing of them is left and gives the
// data directory up. Call it after Serve has returned. Idempotent.
func (d *Daemon) Close(ctx context.Context) error {
	d.mu.Lock()
	closers := d.closers
	d.closers = nil
	d.mu.Unlock()
	var errs []error
	for i := len(closers) - 1; i >= 0; i-- {
		if err := closers[i].close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", closers[i].what, err))
		}
	}
	return errors.Join(errs...)
}

// Leave is for a process that ends now and leaves its sandboxes to the next
// server on the data directory, as if it had died: what that needs is on disk
// at any time. The warm pool is ended. Nothing may be called after it.
func (d *Daemon) Leave(ctx context.Context) error {
	d.log.Info("leaving the sandboxes to the next server", "machines", d.Running())
	return d.node.Leave(ctx)
}

// Running is how many sandboxes run.
func (d *Daemon) Running() int { return d.node.Status().Running }

// Token may use any project of this daemon.
func (d *Daemon) Token() string { return d.token }

// SocketPath is where the server of a data directory accepts this machine's
// root without a token.
func SocketPath(dataDir string) string { return filepath.Join(dataDir, "glovebox.sock") }

// Serve answers requests on ln, on secure with TLS (nil where there is no
// certificate), and on the socket of the data directory, until ctx ends. It
// closes both.
func (d *Daemon) Serve(ctx context.Context, ln, secure net.Listener) error {
	d.setPublic(ln, secure)
	listeners, err := d.listeners(ctx, ln, secure)
	if err != nil {
		for _, l := range listeners {
			l.ln.Close()
		}
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range listeners {
		g.Go(func() error { return l.server.Serve(ctx, l.ln) })
	}
	preparing := make(chan struct{})
	go func() {
		defer close(preparing)
		d.prepare(ctx)
	}()
	err = g.Wait()
	<-preparing
	return err
}

// served is a listener and the server that it is for, nil where that could
// not be made.
type served struct {
	ln     net.Listener
	server *server.Server
}

// listeners are all that Serve serves; also those it has to close on error.
func (d *Daemon) listeners(ctx context.Context, ln, secure net.Listener) (out []served, err error) {
	add := func(ln net.Listener, local, tls bool) {
		s, e := d.newServer(local, tls)
		err = errors.Join(err, e)
		out = append(out, served{ln, s})
	}
	add(ln, false, false)
	if secure != nil {
		add(secure, false, true)
	}
	if d.cfg.OneShot || err != nil {
		return out, err
	}
	socket, err := listenSocket(ctx, SocketPath(d.cfg.DataDir))
	if err != nil {
		return out, err
	}
	add(socket, true, false)
	attrs := []any{"address", "http://" + ln.Addr().String(), "data", d.cfg.DataDir}
	if secure != nil {
		attrs = append(attrs, "tls", "https://"+secure.Addr().String())
	}
	d.log.Info("serving", attrs...)
	return out, err
}

// listenSocket listens at path for the owner of the data directory alone. A
// socket that a dead server left there is replaced: the lock is ours.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an earlier server: %w", err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, fmt.Errorf("protect socket %s: %w", path, err)
	}
	return ln, nil
}

func (d *Daemon) newServer(local, tls bool) (*server.Server, error) {
	cfg := server.Config{
		Control:   serverControl{d.control, d},
		Logger:    d.log,
		Health:    d.ready.health,
		PublicURL: d.cfg.PublicURL,
		Tokens:    d.tokens,
	}
	if tls {
		cfg.TLS = d.cfg.Certificate.Config()
	}
	if local {
		cfg.LocalToken = d.token
	}
	d.addPreview(&cfg)
	return server.New(cfg)
}
