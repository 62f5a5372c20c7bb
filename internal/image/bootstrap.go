package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/layer"
)

// hostTools are what the recipe runs, with the package that has each.
var hostTools = [][2]string{{"mmdebstrap", "mmdebstrap"}, {"npm", "npm"}}

// keyring holds the keys that sign the distribution's packages.
var keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

func checkTools() error {
	var missing []string
	for _, t := range hostTools {
		if _, err := exec.LookPath(t[0]); err != nil {
			missing = append(missing, t[1])
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		missing = append(missing, "debian-archive-keyring")
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: run \"apt-get install %s\"", ErrMissingTool, strings.Join(missing, " "))
	}
	return nil
}

// bootstrap installs the packages in a directory below dir, which mmdebstrap
// mounts, fills and removes, and reads the result as an archive.
func bootstrap(ctx context.Context, t *layer.Tree, dir string, progress ProgressFunc) error {
	args := []string{
		"--variant=minbase", "--mode=root", "--format=tar", "--keyring=" + keyring,
		`--aptopt=Acquire::Languages "none"`,
		"--include=" + strings.Join(packages, ","),
	}
	for _, opt := range dpkgOptions {
		args = append(args, "--dpkgopt="+opt)
	}
	for _, hook := range setUp {
		args = append(args, "--customize-hook="+hook)
	}
	cmd := command(ctx, "mmdebstrap", append(args, suite, "-")...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "LC_ALL=C.UTF-8")
	return run(cmd, progress, func(r io.Reader) error {
		return t.Apply(ctx, progress.countBytes(r, StageUnpack, "", 0))
	})
}

// command ends with its whole process group when ctx does.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second // to unmount and remove its directory
	return cmd
}

// run starts cmd, hands its output to read and reports its messages. The
// error ends with the last of them.
func run(cmd *exec.Cmd, progress ProgressFunc, read func(io.Reader) error) error {
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	said := &messages{progress: progress}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		return err
	}
	out := bufio.NewReaderSize(stdout, 1<<20)
	readErr := read(out)
	if readErr == nil {
		_, readErr = io.Copy(io.Discard, out)
	} else {
		cmd.Cancel() //nolint:errcheck // it has ended
	}
	waitErr := cmd.Wait()
	if waitErr != nil && (readErr == nil || errors.Is(readErr, io.ErrUnexpectedEOF)) {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), waitErr, said.tail())
	}
	return readErr
}

// messages keeps the last lines that a command wrote and reports each.
type messages struct {
	progress ProgressFunc
	part     []byte
	last     []string
}

const (
	keptMessages = 20
	maxMessage   = 400
)

func (m *messages) Write(b []byte) (int, error) {
	m.part = append(m.part, b...)
	for {
		line, rest, ok := strings.Cut(string(m.part), "\n")
		if !ok {
			break
		}
		m.part = []byte(rest)
		m.line(line)
	}
	if len(m.part) > 64<<10 {
		m.line(string(m.part))
		m.part = nil
	}
	return len(b), nil
}

func (m *messages) line(s string) {
	// A progress bar rewrites its line; what stands at the end of it counts.
	s = strings.TrimSpace(s[strings.LastIndexByte(strings.TrimRight(s, "\r"), '\r')+1:])
	if s == "" {
		return
	}
	s = s[:min(len(s), maxMessage)]
	m.last = append(m.last, s)
	if len(m.last) > keptMessages {
		m.last = m.last[1:]
	}
	if text, ok := strings.CutPrefix(s, "I: "); ok && strings.HasSuffix(text, "...") && !strings.Contains(text, "/") {
		m.progress.report(Progress{Stage: StagePackages, Detail: text})
	}
}

func (m *messages) tail() string { return strings.Join(m.last, "\n") }
