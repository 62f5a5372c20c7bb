package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/image"
)

// undoTimeout bounds what is done to remove a sandbox, also after Ctrl-C.
const undoTimeout = 30 * time.Second

// rig is what benches share: servers, a root directory for the peers, and the
// peers themselves. What it hands out lives until close.
type rig struct {
	scope
	opts       options
	dir        string // everything temporary
	loadBefore float64
	servers    map[int]*server // by the size of the pool
	root       string          // of the default image, extracted
	img        image.Image
	peers      []peer
	leftOut    []string
	seq        int
}

func newRig(opts options) (_ *rig, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("sandboxes need root: use make bench, which asks for it")
	}
	r := &rig{opts: opts, servers: map[int]*server{}, loadBefore: loadAverage(), leftOut: []string{}}
	for _, p := range []*string{&r.opts.bin, &r.opts.data} {
		if *p, err = filepath.Abs(*p); err != nil {
			return nil, err
		}
		if _, err := os.Stat(*p); err != nil {
			return nil, fmt.Errorf("%w: run make build image", err)
		}
	}
	if r.dir, err = os.MkdirTemp(opts.tmp, "glovebox-bench-"); err != nil {
		return nil, err
	}
	r.onClose(func() error { return os.RemoveAll(r.dir) })
	r.onClose(r.removeCgroups)
	return r, nil
}

// cgroup is the group that holds those of this run's containers.
func (r *rig) cgroup() string { return filepath.Base(r.dir) }

// removeCgroups removes it; the runtimes remove only what they put into it.
func (r *rig) removeCgroups() error {
	var errs []error
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} { // v2 and v1
		found, err := filepath.Glob(pattern + r.cgroup())
		errs = append(errs, err)
		for _, dir := range found {
			errs = append(errs, os.Remove(dir))
		}
	}
	return errors.Join(errs...)
}

// unique returns a name for one sandbox of this run.
func (r *rig) unique() string {
	r.seq++
	return fmt.Sprintf("%s-%d", filepath.Base(r.dir), r.seq)
}

// subdir makes a directory.
func (r *rig) subdir(name string) (string, error) {
	dir := filepath.Join(r.dir, name)
	return dir, os.MkdirAll(dir, 0o755)
}

// dataDir makes a data directory with the images of the shared one.
func (r *rig) dataDir(name string) (string, error) {
	dir, err := r.subdir(name)
	if err != nil {
		return "", err
	}
	store, err := image.Open(dir, image.Options{})
	if err != nil {
		return "", err
	}
	err = store.Link(r.opts.data)
	if err == nil {
		r.img, err = store.Get(image.DefaultReference)
	}
	if errors.Is(err, image.ErrNotFound) {
		err = fmt.Errorf("%w: run make image", err)
	}
	return dir, errors.Join(err, store.Close())
}

// server returns one whose pool holds warm sandboxes, started when it is
// first asked for.
func (r *rig) server(ctx context.Context, warm int) (*server, error) {
	if s := r.servers[warm]; s != nil {
		return s, nil
	}
	dir, err := r.dataDir(fmt.Sprintf("data-%d", warm))
	if err != nil {
		return nil, err
	}
	s, err := startServer(ctx, r.opts.bin, dir, warm)
	if err != nil {
		return nil, err
	}
	r.servers[warm] = s
	r.onClose(s.stop)
	return s, nil
}

// settle waits until the pools are full, so that no sample shares the machine
// with a refill.
func (r *rig) settle(ctx context.Context) error {
	for _, s := range r.servers {
		if err := s.awaitPool(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// logs is the end of what the servers have logged, for an error.
func (r *rig) logs() string {
	var out strings.Builder
	for _, s := range r.servers {
		if tail := s.logTail(); tail != "" {
			fmt.Fprintf(&out, "\nlog of the server with %d warm sandboxes:\n%s", s.warm, tail)
		}
	}
	return out.String()
}

// findPeers keeps those peers that run `true` here, and says why the others
// are left out.
func (r *rig) findPeers(ctx context.Context) error {
	dir, err := r.dataDir("image")
	if err != nil {
		return err
	}
	runc := &oci{rig: r, title: "runc", command: "runc"}
	runsc := &oci{rig: r, title: "stock gVisor", command: r.opts.runsc, gvisor: true}
	r.onClose(runsc.tidy)
	candidates := []peer{bwrap{r}, runc, runsc}
	candidates = slices.DeleteFunc(candidates, func(p peer) bool {
		if p.program() == "" {
			r.leftOut = append(r.leftOut, p.name())
			return true
		}
		if _, err := exec.LookPath(p.program()); err != nil {
			r.leftOut = append(r.leftOut, fmt.Sprintf("%s: %v", p.name(), err))
			return true
		}
		return false
	})
	if len(candidates) > 0 {
		if err := r.extract(ctx, dir); err != nil {
			return err
		}
	}
	for _, p := range candidates {
		if err := p.run(ctx, command{argv: []string{"true"}}); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			r.leftOut = append(r.leftOut, fmt.Sprintf("%s: %v", p.name(), err))
			continue
		}
		r.peers = append(r.peers, p)
	}
	return nil
}

// extract unpacks the default image for the peers, which want a directory.
func (r *rig) extract(ctx context.Context, dir string) error {
	r.root = filepath.Join(dir, "root")
	for _, l := range r.img.Layers {
		out, err := exec.CommandContext(ctx, "fsck.erofs", "--extract="+r.root, "--overwrite", l.Path).CombinedOutput()
		if err != nil {
			return fmt.Errorf("extract image: %w: %s", err, out)
		}
	}
	return nil
}
