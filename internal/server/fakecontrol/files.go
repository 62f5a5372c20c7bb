package fakecontrol

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"path"

	"github.com/glovebox-dev/glovebox/api"
)

// WriteFiles unpacks into memory.
func (p *Project) WriteFiles(_ context.Context, sessionID, cwd string, r io.Reader) error {
	s, err := p.session(sessionID, true)
	if err != nil {
		return err
	}
	zip, err := gzip.NewReader(r)
	if err != nil {
		return api.BadRequest("body: not gzip (%s); send a gzip tar", err)
	}
	files := map[string][]byte{}
	for archive := tar.NewReader(zip); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return api.BadRequest("body: not a whole tar (%s); send it again", err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return api.BadRequest("body: cut off (%s); send it again", err)
		}
		if h.Typeflag == tar.TypeReg {
			files[path.Join(cwd, h.Name)] = data
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, data := range files {
		s.files[name] = data
	}
	return nil
}

// ReadFile says size 0 for names below /proc, fails in the middle of
// "/broken", and ends early for "/shrinks".
func (p *Project) ReadFile(_ context.Context, sessionID, name, cwd string) (io.ReadCloser, int64, error) {
	s, err := p.session(sessionID, true)
	if err != nil {
		return nil, 0, err
	}
	if err := api.ValidatePath("path", name); err != nil {
		return nil, 0, err
	}
	name = absolute(name, cwd, s.info.Cwd)
	const big = 200_000
	switch name {
	case "/broken":
		return io.NopCloser(io.MultiReader(bytes.NewReader(make([]byte, big)), failingReader{})), 2 * big, nil
	case "/shrinks":
		return io.NopCloser(bytes.NewReader(make([]byte, big))), 2 * big, nil
	case "/grows":
		return io.NopCloser(bytes.NewReader(make([]byte, 2*big))), big, nil
	case "/proc/big":
		return io.NopCloser(bytes.NewReader(make([]byte, big))), 0, nil
	case "/proc/version":
		return io.NopCloser(bytes.NewReader([]byte("fake 1.0\n"))), 0, nil
	case "/tmp":
		return nil, 0, api.BadRequest("field path: %q is a directory", name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	data, ok := s.files[name]
	if !ok {
		e := api.Errorf(api.CodeNotFound, "%q does not exist", name)
		e.Missing = true
		return nil, 0, e
	}
	return io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errBroken }

func absolute(name, cwd, base string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	if cwd == "" {
		cwd = base
	}
	return path.Join(cwd, name)
}

// Mkdir refuses what exists.
func (p *Project) Mkdir(_ context.Context, sessionID, name, cwd string) error {
	s, err := p.session(sessionID, true)
	if err != nil {
		return err
	}
	if err := api.ValidatePath("path", name); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	name = absolute(name, cwd, s.info.Cwd)
	if s.dirs[name] {
		return api.BadRequest("field path: %q already exists", name)
	}
	s.dirs[name] = true
	return nil
}
