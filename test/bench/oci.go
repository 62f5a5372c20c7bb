package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// oci is a command line of OCI runtimes: runc's, or gVisor's with its default
// flags. Both get the same bundle.
type oci struct {
	rig     *rig
	title   string
	command string
	gvisor  bool
}

func (o *oci) name() string    { return o.title }
func (o *oci) program() string { return o.command }

// stateDir is where the runtime keeps what it knows of its containers.
func (o *oci) stateDir() string {
	return filepath.Join(o.rig.dir, "state-"+filepath.Base(o.command))
}

// tidy removes what gVisor's command leaves mounted in its state directory.
func (o *oci) tidy() error {
	err := syscall.Unmount(filepath.Join(o.stateDir(), "null-netns"), syscall.MNT_DETACH)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOENT) {
		return nil // not mounted
	}
	return err
}

// call is a command line; hostNet matters to gVisor, which asks for it by a
// flag beside the bundle.
func (o *oci) call(hostNet bool, args ...string) []string {
	argv := []string{o.command, "--root", o.stateDir()}
	if o.gvisor && hostNet {
		argv = append(argv, "--network=host")
	}
	return append(argv, args...)
}

func (o *oci) run(ctx context.Context, c command) error {
	b, err := o.bundle(false, c.argv)
	if err != nil {
		return err
	}
	if err := c.host(ctx, b.call("run", "--bundle", b.dir, b.id)...); err != nil {
		_ = b.close(ctx) // the command's error is the cause
		return err
	}
	return nil
}

func (o *oci) open(ctx context.Context, hostNet bool, argv ...string) (peerBox, error) {
	b, err := o.bundle(hostNet, argv)
	if err != nil {
		return nil, err
	}
	if err := (command{}).host(ctx, b.call("run", "--detach", "--pid-file", b.pidFile(), "--bundle", b.dir, b.id)...); err != nil {
		_ = b.close(ctx) // the start's error is the cause
		return nil, err
	}
	return b, nil
}

// bundle writes what a runtime starts from.
func (o *oci) bundle(hostNet bool, argv []string) (*ociBox, error) {
	b := &ociBox{peer: o, id: o.rig.unique(), hostNet: hostNet}
	var err error
	if b.dir, err = o.rig.subdir(filepath.Join("bundles", b.id)); err != nil {
		return nil, err
	}
	work := filepath.Join(b.dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return nil, err
	}
	if err := os.Chown(work, userID, userID); err != nil {
		return nil, err
	}
	text, err := json.Marshal(o.spec(b, work, argv))
	if err != nil {
		return nil, err
	}
	return b, os.WriteFile(filepath.Join(b.dir, "config.json"), text, 0o644)
}

func (o *oci) spec(b *ociBox, work string, argv []string) *specs.Spec {
	namespaces := []specs.LinuxNamespace{
		{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
	}
	if !b.hostNet {
		namespaces = append(namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	return &specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{
			User: specs.User{UID: userID, GID: userID}, Args: argv, Env: []string{pathVar}, Cwd: workDir, NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{},
		},
		Root:     &specs.Root{Path: o.rig.root, Readonly: true},
		Hostname: "box",
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
			{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=1777"}},
			{Destination: workDir, Type: "bind", Source: work, Options: []string{"rbind", "rw"}},
		},
		Linux: &specs.Linux{Namespaces: namespaces, CgroupsPath: "/" + o.rig.cgroup() + "/" + b.id},
	}
}

// ociBox is a container.
type ociBox struct {
	peer    *oci
	id, dir string
	hostNet bool
}

func (b *ociBox) call(args ...string) []string { return b.peer.call(b.hostNet, args...) }
func (b *ociBox) pidFile() string              { return filepath.Join(b.dir, "pid") }

func (b *ociBox) exec(ctx context.Context, c command) error {
	user := fmt.Sprintf("%d:%d", userID, userID)
	return c.host(ctx, b.call(append([]string{"exec", "--user", user, "--cwd", workDir, "--env", pathVar, b.id}, c.argv...)...)...)
}

// pids: gVisor's processes are known by their arguments, runc's only by what
// it wrote down.
func (b *ociBox) pids() []int {
	found := processesOf(b.id)
	var pid int
	text, err := os.ReadFile(b.pidFile())
	if err == nil {
		_, err = fmt.Sscan(string(text), &pid)
	}
	if err == nil && !slices.Contains(found, pid) {
		found = append(found, pid)
	}
	return descendants(found)
}

func (b *ociBox) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return (command{}).host(ctx, b.call("delete", "--force", b.id)...)
}
