package client

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/glovebox-dev/glovebox/api"
)

// ReadFile opens a regular file of the sandbox; the caller closes it. A
// relative path starts at the working directory. A file that does not exist
// is fs.ErrNotExist for errors.Is.
func (s *Sandbox) ReadFile(ctx context.Context, name string) (io.ReadCloser, error) {
	var resp *http.Response
	err := s.withSession(ctx, func(session api.Session) (err error) {
		req := api.PathRequest{Path: name}
		resp, err = s.c.do(ctx, request{method: http.MethodPost, path: sessionPath(session.ID, "fs", "read"), json: req, repeatable: true}) //nolint:bodyclose // the caller's
		return err
	})
	if e, ok := errors.AsType[*api.Error](err); ok && e.Missing {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	if err != nil {
		return nil, wrap(err, "read %s of sandbox %s", name, s.Name())
	}
	return resp.Body, nil
}

// Mkdir makes one directory; its parent must exist.
func (s *Sandbox) Mkdir(ctx context.Context, name string) error {
	err := s.withSession(ctx, func(session api.Session) error {
		req := api.PathRequest{Path: name}
		return s.c.call(ctx, request{method: http.MethodPost, path: sessionPath(session.ID, "fs", "mkdir"), json: req}, nil)
	})
	return wrap(err, "make directory %s in sandbox %s", name, s.Name())
}

// WriteFile writes one file, making its parents. Only the permission bits of
// mode count; 0 is 0644.
func (s *Sandbox) WriteFile(ctx context.Context, name string, data []byte, mode fs.FileMode) error {
	return s.WriteTar(ctx, ".", func(w *tar.Writer) error {
		return addFile(w, name, data, mode)
	})
}

// WriteFiles writes files by their path, making parents; see WriteFile.
func (s *Sandbox) WriteFiles(ctx context.Context, files map[string][]byte) error {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return s.WriteTar(ctx, ".", func(w *tar.Writer) error {
		for _, name := range names {
			if err := addFile(w, name, files[name], 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// WriteFS copies a file system into the directory dir of the sandbox, which
// is made where missing. Symbolic links are copied as such where fsys has
// fs.ReadLinkFS.
func (s *Sandbox) WriteFS(ctx context.Context, dir string, fsys fs.FS) error {
	return s.WriteTar(ctx, dir, func(w *tar.Writer) error { return w.AddFS(fsys) })
}

func addFile(w *tar.Writer, name string, data []byte, mode fs.FileMode) error {
	if mode == 0 {
		mode = 0o644
	}
	h := &tar.Header{Name: name, Mode: int64(mode.Perm()), Size: int64(len(data)), Typeflag: tar.TypeReg}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// WriteTar unpacks in the directory dir what fill writes. Names may be
// absolute; relative ones start at dir, and a relative dir at the working
// directory. Nothing appears under its name before all of it has arrived, and
// nothing at all if fill fails. fill may be called a second time, when the
// sandbox turns out to have stopped.
func (s *Sandbox) WriteTar(ctx context.Context, dir string, fill func(*tar.Writer) error) error {
	err := s.withSession(ctx, func(session api.Session) error {
		base := path.Join("/", session.Cwd, dir)
		if path.IsAbs(dir) {
			base = path.Clean(dir)
		}
		pr, pw := io.Pipe()
		// The HTTP transport waits for a Read that is under way, even after
		// a cancellation.
		defer context.AfterFunc(ctx, func() { pr.CloseWithError(context.Cause(ctx)) })()
		filled := make(chan error, 1)
		go func() {
			err := packTar(pw, base, fill)
			pw.CloseWithError(err)
			filled <- err
		}()
		err := s.c.call(ctx, request{
			method: http.MethodPost, path: sessionPath(session.ID, "fs", "write"), body: pr,
			header: http.Header{"Content-Type": {"application/gzip"}, "X-Cwd": {"/"}},
		}, nil)
		pr.CloseWithError(errClosed)
		if fillErr := <-filled; fillErr != nil && !errors.Is(fillErr, errClosed) {
			return fillErr
		}
		return err
	})
	return wrap(err, "write files into sandbox %s", s.Name())
}

var errClosed = errors.New("the upload is over")

// packTar writes the gzip tar. The entries' names are made relative to the
// root, as the header that could carry a directory takes no other than Latin
// characters.
func packTar(w io.Writer, base string, fill func(*tar.Writer) error) error {
	// Speed over ratio: most uploads go over loopback or a fast network.
	zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		tw := tar.NewWriter(pw)
		err := fill(tw)
		if err == nil {
			err = tw.Close()
		}
		pw.CloseWithError(err)
		done <- err
	}()
	err = rebase(tar.NewWriter(zip), tar.NewReader(pr), base)
	pr.CloseWithError(errClosed)
	if fillErr := <-done; fillErr != nil && !errors.Is(fillErr, errClosed) {
		return fillErr
	}
	if err != nil {
		return err
	}
	return zip.Close()
}

func rebase(to *tar.Writer, from *tar.Reader, base string) error {
	for {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			return to.Close()
		}
		if err != nil {
			return err
		}
		name := h.Name
		if !path.IsAbs(name) {
			name = path.Join(base, name)
		}
		h.Name = strings.TrimPrefix(path.Clean(name), "/")
		if h.Name == "" {
			continue // the root itself
		}
		if h.Typeflag == tar.TypeDir {
			h.Name += "/"
		}
		if err := to.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(to, from); err != nil {
			return err
		}
	}
}
