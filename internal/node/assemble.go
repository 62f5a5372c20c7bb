package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/snapshot"
)

// Hostname of every sandbox. One name for all, since warm machines are
// assembled before anyone knows who will use them.
const Hostname = "sandbox"

// root is what a machine's file system is made of.
type root struct {
	img    image.Image
	layers []image.Layer // of a snapshot, on top
	drives []Drive
}

// all are the layers, bottom first.
func (r root) all() []image.Layer { return slices.Concat(r.img.Layers, r.layers) }

func (r root) check() error {
	if n := len(r.img.Layers) + len(r.layers); n > driver.MaxLayers {
		return fmt.Errorf("image %s with %d layers on top: %d are more than the %d that a machine takes: merge some", r.img.Reference, len(r.layers), n, driver.MaxLayers)
	}
	for _, d := range r.drives {
		if n := len(d.Layers); n > driver.MaxLayers {
			return fmt.Errorf("drive at %s: %d layers are more than the %d that a machine takes: merge some", d.Path, n, driver.MaxLayers)
		}
	}
	return nil
}

// assemble mounts layers into a bare machine, has the agent make the root of
// them, and runs one command, so that what the first command of a guest pays
// (page faults of the agent, of libc) is paid here.
func (n *node) assemble(ctx context.Context, m *machine, r root) error {
	n.mu.Lock()
	m.root = r
	n.mu.Unlock()
	a, err := n.assembly(r)
	if err != nil {
		return fmt.Errorf("assemble image %s: %w", r.img.Reference, err)
	}
	var paths []string
	for _, l := range r.all() {
		paths = append(paths, l.Path)
	}
	if err := m.MountLayers(ctx, paths); err != nil {
		return fmt.Errorf("mount image %s: %w", r.img.Reference, err)
	}
	if err := n.mountDrives(ctx, m, r.drives); err != nil {
		return err
	}
	if err := m.agent.Assemble(ctx, a); err != nil {
		return fmt.Errorf("assemble image %s: %w", r.img.Reference, err)
	}
	m.alsoMade(made(a))
	return m.rehearse(ctx, a.Owner, r.img.Config)
}

// assembly is what the agent makes besides the layers. Of a root that was
// assembled before, the guest may have changed all of it, and what it has made
// of it stays; only the resolver's address is not its to lose.
func (n *node) assembly(r root) (guest.Assembly, error) {
	u := r.img.Config.User
	a := guest.Assembly{
		Layers:   len(r.all()),
		Resumed:  len(r.layers) > 0,
		Hostname: Hostname,
		Owner:    guest.User{UID: u.UID, GID: u.GID, Groups: u.Groups},
		Extras:   guest.Extras{Xattrs: map[string]map[string][]byte{}},
		Files: map[string][]byte{
			"/etc/resolv.conf": []byte("nameserver " + driver.GatewayAddr.String() + "\noptions timeout:5 attempts:2\n"),
		},
	}
	if err := n.addDrives(&a, r.drives); err != nil {
		return a, err
	}
	if !a.Resumed {
		a.Dirs = []string{r.img.Config.WorkingDir}
		a.Files["/etc/hostname"] = []byte(Hostname + "\n")
		a.Files["/etc/hosts"] = []byte("127.0.0.1\tlocalhost\n::1\tlocalhost\n" + driver.GuestAddr.String() + "\t" + Hostname + "\n")
		for _, l := range r.img.Layers {
			maps.Copy(a.Xattrs, l.Xattrs)
		}
		return a, nil
	}
	if n.cfg.Snapshots == nil {
		return a, errNoSnapshots
	}
	extras, err := n.cfg.Snapshots.Extras(r.all())
	if err != nil {
		return a, err
	}
	a.Extras = guestExtras("", extras)
	return a, nil
}

// guestExtras is what the layers of a disk that is mounted at dir cannot hold.
// Of a file of several names one gets the attributes, and the others become
// links to it.
func guestExtras(dir string, extras snapshot.Extras) guest.Extras {
	a := guest.Extras{Xattrs: map[string]map[string][]byte{}, Links: map[string]string{}}
	first := map[string]string{} // name of each such file
	for _, p := range slices.Sorted(maps.Keys(extras)) {
		x := extras[p]
		if dir != "" {
			p = path.Join(dir, p)
		}
		if d := x.Device; d != nil {
			a.Devices = append(a.Devices, guest.Device{Path: p, Mode: d.Mode, UID: d.UID, GID: d.GID, Major: d.Major, Minor: d.Minor, ModTime: d.ModTime})
		}
		if target, ok := first[x.File]; ok && x.File != "" {
			a.Links[p] = target
			continue
		}
		first[x.File] = p
		if len(x.Xattrs) > 0 {
			a.Xattrs[p] = x.Xattrs
		}
	}
	return a
}

// made lists what an assembly makes, files with their content and directories
// without: by itself it is no reason to save a disk.
func made(a guest.Assembly) map[string][]byte {
	out := maps.Clone(a.Files)
	dirs := append([]string{"/proc", "/sys", "/dev", "/tmp", "/run", "/etc"}, a.Dirs...)
	for _, d := range a.Drives {
		dirs = append(dirs, d.Path)
	}
	for _, d := range dirs {
		for ; d != "/"; d = path.Dir(d) {
			out[d] = nil
		}
	}
	return out
}

// rehearse runs the cheapest command that every image can run or fail to run:
// what it answers does not matter, only that it has been run.
func (m *machine) rehearse(ctx context.Context, u guest.User, c image.Config) error {
	const id = "rehearsal"
	if err := m.agent.StartCommand(ctx, guest.Command{ID: id, Argv: []string{"true"}, Env: c.Env, Dir: "/", User: u}); err != nil {
		return fmt.Errorf("rehearse a command: %w", err)
	}
	if err := m.agent.Attach(ctx, id, 0, func(int64, []byte) error { return nil }); err != nil {
		return fmt.Errorf("rehearse a command: %w", err)
	}
	if err := m.agent.Forget(ctx, id); err != nil {
		return fmt.Errorf("rehearse a command: %w", err)
	}
	return nil
}

func newMachineID() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return "m-" + hex.EncodeToString(b[:])
}
