package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/image"
)

// Hostname of every sandbox. One name for all, since warm machines are
// assembled before anyone knows who will use them.
const Hostname = "sandbox"

// assemble mounts an image's layers into a bare machine, has the agent make
// the root of them, and runs one command, so that what the first command of a
// guest pays (page faults of the agent, of libc) is paid here.
func (m *machine) assemble(ctx context.Context, img image.Image) error {
	paths := make([]string, len(img.Layers))
	xattrs := map[string]map[string][]byte{}
	for i, l := range img.Layers {
		paths[i] = l.Path
		for p, kv := range l.Xattrs {
			xattrs[p] = kv
		}
	}
	if err := m.MountLayers(ctx, paths); err != nil {
		return fmt.Errorf("mount image %s: %w", img.Reference, err)
	}
	u := img.Config.User
	owner := guest.User{UID: u.UID, GID: u.GID, Groups: u.Groups}
	a := guest.Assembly{
		Layers:   len(paths),
		Hostname: Hostname,
		Xattrs:   xattrs,
		Dirs:     []string{img.Config.WorkingDir},
		Owner:    owner,
		Files: map[string][]byte{
			"/etc/hostname":    []byte(Hostname + "\n"),
			"/etc/hosts":       []byte("127.0.0.1\tlocalhost\n::1\tlocalhost\n" + driver.GuestAddr.String() + "\t" + Hostname + "\n"),
			"/etc/resolv.conf": []byte("nameserver " + driver.GatewayAddr.String() + "\noptions timeout:5 attempts:2\n"),
		},
	}
	if err := m.agent.Assemble(ctx, a); err != nil {
		return fmt.Errorf("assemble image %s: %w", img.Reference, err)
	}
	return m.rehearse(ctx, owner, img.Config)
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
