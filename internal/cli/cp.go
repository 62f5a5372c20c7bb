package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/client"
)

func (a *app) cpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cp SRC DST",
		Short: "Copy files and directories into a sandbox or out of it",
		Long: `Copies a file or a directory; one side is SANDBOX:PATH. A relative path in a
sandbox starts at its working directory. Where DST is a directory, SRC goes into
it; otherwise SRC becomes DST. "-" is stdin or stdout, for a single file.`,
		Example: `glovebox cp ./site web:site
glovebox cp web:/var/log/app.log .
glovebox cp web:result.json - | jq .`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to := parsePlace(args[0]), parsePlace(args[1])
			if (from.sandbox == "") == (to.sandbox == "") {
				return usage(cmd, errors.New("exactly one of SRC and DST must be SANDBOX:PATH"))
			}
			sandbox, err := a.sandbox(cmd.Context(), from.sandbox+to.sandbox)
			if err != nil {
				return err
			}
			if to.sandbox != "" {
				return a.copyIn(cmd.Context(), sandbox, from.path, to.path)
			}
			return a.copyOut(cmd.Context(), sandbox, from.path, to.path)
		},
	}
}

func (a *app) copyIn(ctx context.Context, sandbox *client.Sandbox, src, dst string) error {
	if src == "-" {
		data, err := io.ReadAll(a.in)
		if err != nil {
			return fmt.Errorf("read stdin: %w", err)
		}
		return sandbox.WriteFile(ctx, dst, data, 0o644)
	}
	if _, err := os.Stat(src); err != nil {
		return fail(causeOf("read", src, err), "check the path")
	}
	into := strings.HasSuffix(dst, "/")
	if !into {
		mode, err := statInside(ctx, sandbox, dst)
		into = err == nil && mode.IsDir()
	}
	if into {
		abs, err := filepath.Abs(src)
		if err != nil {
			return err
		}
		dst = path.Join(dst, filepath.Base(abs))
	}
	return putFile(ctx, sandbox, src, dst)
}

// putFile writes the file or directory src of this machine to dst.
func putFile(ctx context.Context, sandbox *client.Sandbox, src, dst string) error {
	return sandbox.WriteTar(ctx, ".", func(w *tar.Writer) error { return packInto(w, src, dst) })
}

// putFiles does what --file asks for.
func putFiles(ctx context.Context, sandbox *client.Sandbox, specs []string) error {
	for _, s := range specs {
		src, dst := parseFile(s)
		if _, err := os.Stat(src); err != nil {
			return fail(causeOf("read", src, err), "correct --file "+s)
		}
		if err := putFile(ctx, sandbox, src, dst); err != nil {
			return err
		}
	}
	return nil
}

func causeOf(verb, name string, err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return fmt.Sprintf("%s %s: %v", verb, name, err)
}

func (a *app) copyOut(ctx context.Context, sandbox *client.Sandbox, src, dst string) error {
	mode, err := statInside(ctx, sandbox, src)
	if errors.Is(err, fs.ErrNotExist) {
		return fail(fmt.Sprintf("%s does not exist in sandbox %s", src, sandbox.Name()), "list it: glovebox exec "+sandbox.Name()+" -- ls -la")
	}
	if err != nil && !errors.Is(err, errNoStat) {
		return err
	}
	if dst == "-" {
		return a.readTo(ctx, sandbox, src, a.out)
	}
	if fi, err := os.Stat(dst); err == nil && fi.IsDir() {
		dst = filepath.Join(dst, path.Base(path.Join("/", src)))
	} else if strings.HasSuffix(dst, "/") {
		return fail(dst+" is not a directory", "make it first")
	}
	if mode.IsDir() {
		return a.copyTree(ctx, sandbox, src, dst)
	}
	return a.copyFile(ctx, sandbox, src, dst, mode)
}

func (a *app) readTo(ctx context.Context, sandbox *client.Sandbox, src string, w io.Writer) error {
	r, err := sandbox.ReadFile(ctx, src)
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := io.Copy(w, r); err != nil {
		return fmt.Errorf("copy %s: %w", src, err)
	}
	return nil
}

// copyFile writes beside the final name first, so that a copy that breaks off
// leaves nothing under it.
func (a *app) copyFile(ctx context.Context, sandbox *client.Sandbox, src, dst string, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(dst), "."+filepath.Base(dst)+"-")
	if err != nil {
		return fail(causeOf("write", dst, err), "check the path")
	}
	defer os.Remove(tmp.Name())
	err = a.readTo(ctx, sandbox, src, tmp)
	if err == nil {
		err = tmp.Chmod(mode.Perm())
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), dst)
	}
	return err
}

// errNoStat: the image has no stat, so nothing is known about the path.
var errNoStat = errors.New("the image has no stat command")

// statInside asks for a path's type and mode; links are followed. Where the
// image has no stat, the mode is that of a plain file, with errNoStat.
func statInside(ctx context.Context, sandbox *client.Sandbox, name string) (fs.FileMode, error) {
	const plain = fs.FileMode(0o644)
	var out strings.Builder
	command, err := sandbox.RunCommand(ctx, client.Cmd{Name: "stat", Args: []string{"-L", "-c", "%f", "--", name}, Stdout: &out, Sudo: true})
	if err != nil {
		return plain, err
	}
	switch command.ExitCode() {
	case 0:
	case 126, 127:
		return plain, errNoStat
	default:
		return plain, fs.ErrNotExist
	}
	raw, err := strconv.ParseUint(strings.TrimSpace(out.String()), 16, 32)
	if err != nil {
		return plain, errNoStat
	}
	mode := fs.FileMode(raw & 0o777)
	if raw&0o170000 == 0o040000 {
		mode |= fs.ModeDir
	}
	return mode, nil
}

// copyTree brings a directory out as one archive, which the sandbox makes in
// a file of its own: the output of a command is text, a file is bytes.
func (a *app) copyTree(ctx context.Context, sandbox *client.Sandbox, src, dst string) error {
	archive := fmt.Sprintf("/tmp/.glovebox-cp-%d.tar", time.Now().UnixNano())
	var stderr strings.Builder
	command, err := sandbox.RunCommand(ctx, client.Cmd{
		Name: "tar", Args: []string{"-cf", archive, "-C", src, "."}, Stderr: &stderr, Sudo: true,
	})
	if err != nil {
		return err
	}
	defer func() {
		after, cancel := afterwards(ctx)
		defer cancel()
		if _, err := sandbox.RunCommand(after, client.Cmd{Name: "rm", Args: []string{"-f", archive}, Sudo: true}); err != nil {
			a.note("%s stays in the sandbox: %v", archive, err)
		}
	}()
	if command.ExitCode() != 0 {
		return fail(fmt.Sprintf("tar in sandbox %s: %s", sandbox.Name(), strings.TrimSpace(stderr.String())), "copy single files instead")
	}
	r, err := sandbox.ReadFile(ctx, archive)
	if err != nil {
		return err
	}
	defer r.Close()
	parent, err := os.OpenRoot(filepath.Dir(dst))
	if err != nil {
		return fail(causeOf("open", filepath.Dir(dst), err), "make the directory first")
	}
	defer parent.Close()
	return unpackTo(parent, filepath.Base(dst), tar.NewReader(r), func(name string) {
		a.note("left out %s: it is no file, directory or link", printable(name))
	})
}

// cleanupTime bounds what is undone after an error or Ctrl-C.
const cleanupTime = 15 * time.Second

// afterwards is a context for what must be done although ctx may have ended.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}
