package daemon

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/control"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/netstack"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/oidc"
	"github.com/glovebox-dev/glovebox/internal/preview"
	"github.com/glovebox-dev/glovebox/internal/scratch"
	"github.com/glovebox-dev/glovebox/internal/server"
	"github.com/glovebox-dev/glovebox/internal/snapshot"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// StateFile is the database in a data directory.
const StateFile = "glovebox.db"

func (d *Daemon) openStores(ctx context.Context) (err error) {
	if d.store, err = store.Open(ctx, filepath.Join(d.cfg.DataDir, StateFile)); err != nil {
		return err
	}
	d.onClose("store", func(context.Context) error { return d.store.Close() })
	d.images, err = image.Open(d.cfg.DataDir, image.Options{PullMissing: true, InUse: d.imageInUse, Room: d.reserve().Check, Logger: d.log})
	if err != nil {
		return err
	}
	d.onClose("images", func(context.Context) error { return d.images.Close() })
	if d.snapshots, err = snapshot.Open(d.cfg.DataDir, snapshot.Options{Logger: d.log, Reserve: d.reserve()}); err != nil {
		return err
	}
	d.onClose("snapshots", func(context.Context) error { return d.snapshots.Close() })
	return nil
}

// reserve is nil where there is none.
func (d *Daemon) reserve() *scratch.Reserve {
	if d.cfg.ReserveBytes <= 0 {
		return nil
	}
	return &scratch.Reserve{Dir: d.cfg.DataDir, Bytes: d.cfg.ReserveBytes}
}

// imageInUse keeps what sandboxes and snapshots stand on from being removed;
// also where nobody can tell.
func (d *Daemon) imageInUse(digest string) bool {
	used, err := d.store.ImageInUse(context.Background(), digest)
	if err != nil {
		d.log.Error("find what an image is used for", "image", digest, "err", err)
	}
	return used || err != nil
}

func (d *Daemon) openNode() error {
	upstream, err := netstack.NewUpstream(d.cfg.DNS)
	if err != nil {
		return err
	}
	roots, err := egressRoots(d.cfg.EgressCAFile)
	if err != nil {
		return err
	}
	drv, err := gvisor.New(gvisor.Options{DataDir: d.cfg.DataDir})
	if err != nil {
		return err
	}
	d.onClose("driver", func(context.Context) error { return drv.Close() })
	d.tokens = oidc.New(d.cfg.DataDir, d.publicURL)
	warm := d.cfg.Warm
	if d.cfg.OneShot {
		warm = 0
	}
	d.node, err = node.New(node.Config{Driver: drv, Snapshots: d.snapshots, Logger: d.log, Upstream: upstream, Deny: d.cfg.NetworkDeny, Roots: roots, Token: d.tokens.Token, Warm: warm})
	if err != nil {
		return err
	}
	d.onClose("node", d.node.Close)
	return nil
}

// egressRoots are the system's authorities with those in file; nil for the
// system's alone.
func egressRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the authorities for outgoing connections: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's authorities: %w", err)
	}
	if !roots.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("read the authorities for outgoing connections: %s holds no certificate in PEM form", file)
	}
	return roots, nil
}

func (d *Daemon) openControl(ctx context.Context) (err error) {
	d.control, err = control.New(control.Config{
		Store: d.store, Node: d.node, Images: images{d}, Logger: d.log,
		LogDir: filepath.Join(d.cfg.DataDir, "sessions"), PreviewURL: d.previewURL, Limits: d.cfg.Limits,
		Reserve: d.reserve(), RootToken: d.token, Version: d.cfg.Version, TakeOver: !d.cfg.OneShot,
	})
	if err != nil {
		return err
	}
	// From here on control closes the node and the store.
	d.closers = slices.DeleteFunc(d.closers, func(c closer) bool { return c.what == "node" || c.what == "store" })
	d.onClose("control", d.control.Close)
	if err := d.control.Recover(ctx); err != nil {
		return fmt.Errorf("recover sessions of an earlier server: %w", err)
	}
	return nil
}

// images resolves references for control.
type images struct{ d *Daemon }

func (i images) Resolve(ctx context.Context, ref string) (image.Image, error) {
	if ref == "" {
		ref = image.DefaultReference
	}
	img, err := i.d.images.Resolve(ctx, ref, nil)
	if errors.Is(err, image.ErrNotFound) || errors.Is(err, image.ErrInvalidReference) {
		return image.Image{}, api.BadRequest("image: %v", err)
	}
	return img, err
}

// setPublic settles where previews are reached: at the listener's port, under
// names below localhost, unless there is a domain for them. That is reached
// at the port of our own TLS, or of the proxy that ends it in front of us.
func (d *Daemon) setPublic(plain, secure net.Listener) {
	u := &url.URL{Scheme: "http", Host: withPort("localhost", plain, 80)}
	if d.cfg.PreviewDomain != "" {
		u = &url.URL{Scheme: "https", Host: d.cfg.PreviewDomain}
		if secure != nil {
			u.Host = withPort(u.Host, secure, 443)
		}
	}
	d.mu.Lock()
	d.public, d.address = u, "http://"+plain.Addr().String()
	d.mu.Unlock()
}

// withPort adds the port of a listener to a name, where it is not the usual.
func withPort(name string, ln net.Listener, usual int) string {
	if tcp, ok := ln.Addr().(*net.TCPAddr); ok && tcp.Port != usual {
		return fmt.Sprintf("%s:%d", name, tcp.Port)
	}
	return name
}

// publicURL is where clients reach the API.
func (d *Daemon) publicURL() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return cmp.Or(d.cfg.PublicURL, d.address)
}

func (d *Daemon) previewURL(subdomain string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.public == nil {
		return ""
	}
	u := *d.public
	u.Host = subdomain + "." + u.Host
	return u.String()
}

// addPreview has the server pass requests to previews on.
func (d *Daemon) addPreview(cfg *server.Config) {
	hosts := preview.Hosts{Domain: d.cfg.PreviewDomain}
	h := preview.New(preview.Config{Hosts: hosts, Resolve: d.previewTarget, Logger: d.log})
	d.onClose("previews", func(context.Context) error { h.Close(); return nil })
	cfg.IsPreviewHost, cfg.Preview = hosts.IsPreview, h
}

func (d *Daemon) previewTarget(ctx context.Context, subdomain string) (preview.Target, error) {
	r, err := d.control.Route(ctx, subdomain)
	return d.targetOf(r, err)
}

// targetOf is a route in the preview's terms.
func (d *Daemon) targetOf(r control.Route, err error) (preview.Target, error) {
	var e *api.Error
	switch {
	case errors.As(err, &e) && e.Code == api.CodeNotFound:
		return preview.Target{}, preview.ErrUnknownHost
	case err != nil:
		return preview.Target{}, err
	case r.Wake != nil:
		return preview.Target{
			Sandbox: r.SandboxName, Port: r.Port, Admits: r.Admits,
			Wake: func(ctx context.Context) (preview.Target, error) { return d.targetOf(r.Wake(ctx)) },
		}, nil
	case r.State != control.RouteRunning:
		return preview.Target{}, fmt.Errorf("%w: %s", preview.ErrStopped, r.SandboxName)
	}
	return preview.Target{
		Key:     fmt.Sprintf("%s/%d", r.SessionID, r.Port),
		Sandbox: r.SandboxName, Port: r.Port, Admits: r.Admits, Dial: r.Dial, Done: r.Done,
	}, nil
}

// serverControl is the control plane in the server's terms.
type serverControl struct {
	*control.Control
	d *Daemon
}

func (c serverControl) Project(ctx context.Context, name string) (server.Project, error) {
	p, err := c.Control.Project(ctx, name)
	if err != nil {
		return nil, err
	}
	return project{p}, nil
}

type project struct{ *control.Project }

func (p project) CommandLogs(ctx context.Context, sessionID, id string) (server.LogReader, error) {
	r, err := p.Project.CommandLogs(ctx, sessionID, id)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (p project) OpenTerminal(ctx context.Context, sessionID string, start api.TerminalStart) (server.Terminal, error) {
	t, err := p.Project.OpenTerminal(ctx, sessionID, start)
	if err != nil {
		return nil, err
	}
	return t, nil
}
