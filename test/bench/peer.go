package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// User and paths of the default image.
const (
	workDir = "/vercel/sandbox"
	userID  = 1000
	pathVar = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// idler is what keeps a sandbox open.
var idler = []string{"sleep", "infinity"}

// peer is another program that runs commands apart from the host. All of them
// get the default image as a read-only root, a writable working directory and
// the same user.
type peer interface {
	name() string
	program() string
	// run does one command in a sandbox of its own, from start to removal.
	run(ctx context.Context, c command) error
	// open starts a sandbox that lasts until it is closed, with argv as its
	// first process. With hostNet it shares the host's network.
	open(ctx context.Context, hostNet bool, argv ...string) (peerBox, error)
}

// peerBox is a peer's open sandbox.
type peerBox interface {
	exec(ctx context.Context, c command) error
	// pids are its processes on the host.
	pids() []int
	// close removes it, also when ctx has ended.
	close(ctx context.Context) error
}

// command of a peer, which must exit with 0.
type command struct {
	argv  []string
	stdin []byte
	out   io.Writer // nil discards
}

// host runs a program of the host in a process group of its own, so that
// Ctrl-C reaches it only through us.
func (c command) host(ctx context.Context, argv ...string) error {
	// What a sandbox that lasts inherits must be a file: the end of a pipe
	// would come with the sandbox's.
	stderr, err := os.CreateTemp("", "bench-stderr-")
	if err != nil {
		return err
	}
	defer stderr.Close()
	if err := os.Remove(stderr.Name()); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = environ()
	if c.stdin != nil {
		cmd.Stdin = bytes.NewReader(c.stdin)
	}
	cmd.Stdout, cmd.Stderr = c.out, stderr
	if err := cmd.Run(); err != nil {
		said, _ := io.ReadAll(io.NewSectionReader(stderr, 0, 4<<10)) // beside the error that is reported
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(said))
	}
	return nil
}

// bwrap has no sandbox that lasts beyond its one command: a second command is
// a second sandbox with the same working directory.
type bwrap struct{ rig *rig }

func (bwrap) name() string    { return "bwrap" }
func (bwrap) program() string { return "bwrap" }

func (b bwrap) args(dir string, hostNet bool, argv []string) []string {
	args := []string{
		"bwrap", "--unshare-all", "--die-with-parent", "--uid", fmt.Sprint(userID), "--gid", fmt.Sprint(userID),
		"--ro-bind", b.rig.root, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
		"--bind", dir, workDir, "--chdir", workDir, "--clearenv", "--setenv", "PATH", strings.TrimPrefix(pathVar, "PATH="),
	}
	if hostNet {
		args = append(args, "--share-net")
	}
	return append(args, argv...)
}

func (b bwrap) run(ctx context.Context, c command) error {
	box, err := b.empty()
	if err != nil {
		return err
	}
	return box.exec(ctx, c)
}

func (b bwrap) empty() (*bwrapBox, error) {
	dir, err := b.rig.subdir(filepath.Join("bwrap", b.rig.unique()))
	return &bwrapBox{peer: b, dir: dir}, err
}

func (b bwrap) open(ctx context.Context, hostNet bool, argv ...string) (peerBox, error) {
	box, err := b.empty()
	if err != nil {
		return nil, err
	}
	args := b.args(box.dir, hostNet, argv)
	box.first = exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...)
	box.first.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return box, box.first.Start()
}

type bwrapBox struct {
	peer  bwrap
	dir   string
	first *exec.Cmd
}

func (b *bwrapBox) exec(ctx context.Context, c command) error {
	return c.host(ctx, b.peer.args(b.dir, false, c.argv)...)
}

func (b *bwrapBox) pids() []int { return processesOf(b.dir) }

func (b *bwrapBox) close(context.Context) error {
	if err := b.first.Process.Kill(); err != nil {
		return err
	}
	_ = b.first.Wait() // killed, by us
	return nil
}
