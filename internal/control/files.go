package control

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"syscall"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/scratch"
)

// ReadFile opens a regular file. The error's Missing tells that there is none
// of that name. size is the file's metadata's: 0 also of files that are made
// while they are read. Close content.
func (p *Project) ReadFile(ctx context.Context, sessionID, path, cwd string) (content io.ReadCloser, size int64, err error) {
	s, full, err := p.locate(ctx, sessionID, path, cwd)
	if err != nil {
		return nil, 0, err
	}
	m := s.liveMachine()
	content, info, err := m.ReadFile(ctx, full)
	switch {
	case err == nil:
		return content, info.Size, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		e := api.Errorf(api.CodeNotFound, "field path: %.200q does not exist in the sandbox", full)
		e.Missing = true
		return nil, 0, e
	case errors.Is(err, guest.ErrNotRegular), errors.Is(err, syscall.EISDIR):
		return nil, 0, api.BadRequest("field path: %.200q is not a regular file; only those can be read", full)
	}
	return nil, 0, s.fileError(ctx, "read", full, err)
}

// Mkdir makes one directory, whose parent must be there.
func (p *Project) Mkdir(ctx context.Context, sessionID, path, cwd string) error {
	s, full, err := p.locate(ctx, sessionID, path, cwd)
	if err != nil {
		return err
	}
	err = s.liveMachine().Mkdir(ctx, full, runAs(s.image.Config, false))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		return api.BadRequest("field path: %.200q exists already", full)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return api.BadRequest("field path: the parent of %.200q is no directory; make it first, or run mkdir -p", full)
	}
	return s.fileError(ctx, "mkdir", full, err)
}

// WriteFiles unpacks a gzip-compressed tar below cwd: all of it, or nothing
// under a final name.
func (p *Project) WriteFiles(ctx context.Context, sessionID, cwd string, gzipTar io.Reader) error {
	if cwd == "" {
		cwd = "."
	}
	s, dir, err := p.locate(ctx, sessionID, cwd, "")
	if err != nil {
		return err
	}
	up := newUpload(roomReader{p.c.cfg.Reserve, gzipTar})
	err = s.liveMachine().WriteTar(ctx, dir, runAs(s.image.Config, false), up, up.verify)
	up.close()
	switch broken := up.broken(); {
	case err == nil:
		return nil
	case errors.Is(broken, syscall.ENOSPC):
		return internal("write files below "+dir, broken)
	case broken != nil && ctx.Err() == nil:
		return api.BadRequest("body: %v; send a whole gzip-compressed tar", broken)
	case errors.Is(err, guest.ErrArchive):
		return api.BadRequest("body: %v", err)
	case errors.Is(err, syscall.EISDIR), errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY):
		return api.BadRequest("body: a file would take the place of a directory (%v); remove that first, or choose another path", err)
	case errors.Is(err, syscall.ENOTDIR):
		return api.BadRequest("body: a path leads through something that is no directory (%v); choose another path", err)
	}
	return s.fileError(ctx, "write files below", dir, err)
}

// roomReader reads as long as the host's reserve is not touched.
type roomReader struct {
	reserve *scratch.Reserve
	r       io.Reader
}

func (r roomReader) Read(b []byte) (int, error) {
	if err := r.reserve.Check(); err != nil {
		return 0, err
	}
	return r.r.Read(b)
}

// locate returns a running session and the absolute path in it.
func (p *Project) locate(ctx context.Context, sessionID, path, cwd string) (*session, string, error) {
	s, err := p.running(ctx, sessionID)
	if err != nil {
		return nil, "", err
	}
	if err := api.ValidatePath("path", path); err != nil {
		return nil, "", err
	}
	if cwd != "" {
		if err := api.ValidatePath("cwd", cwd); err != nil {
			return nil, "", err
		}
	}
	return s, resolvePath(s.rootDir(), cwd, path), nil
}

// fileError turns what else a guest says about a file into a bad request: it
// is about the user's own file system.
func (s *session) fileError(ctx context.Context, op, path string, err error) error {
	if errors.Is(err, guest.ErrNoSpace) || errors.Is(err, syscall.ENOSPC) {
		return api.BadRequest("%s %.200q: no space left on the sandbox's disk (%d MiB); remove something", op, path, s.c.cfg.Limits.DiskBytes>>20)
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok && !isStopped(err) && ctx.Err() == nil {
		return api.BadRequest("%s %.200q: %v", op, path, pe.Err)
	}
	// What the guest's kernel says of a file (EIO of /proc/1/mem, for one) will
	// not be otherwise the next time: no error of the server's.
	if errno, ok := errors.AsType[syscall.Errno](err); ok && !isStopped(err) && !errors.Is(err, guest.ErrClosed) && ctx.Err() == nil {
		return api.BadRequest("%s %.200q: %v", op, path, errno)
	}
	return s.machineError(ctx, s.liveMachine(), op+" "+path, err)
}
