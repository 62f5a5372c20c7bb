package guest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// Stat tells of the file at an absolute path; symlinks are followed.
func (c *Conn) Stat(ctx context.Context, path string) (FileInfo, error) {
	m := wire.Path{Path: path}
	p, err := c.call(ctx, wire.KindStat, m.Append(nil))
	if err != nil {
		return FileInfo{}, pathError("stat", path, err)
	}
	var st wire.Stat
	if st.Decode(p) != nil {
		return FileInfo{}, (&stream{c: c}).protocol("malformed stat")
	}
	return fileInfo(&st), nil
}

func fileInfo(st *wire.Stat) FileInfo {
	return FileInfo{Size: st.Size, Mode: fileMode(st.Mode), UID: st.UID, GID: st.GID, ModTime: time.Unix(0, st.MtimeNS)}
}

// fileMode translates the kernel's st_mode.
func fileMode(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & 0o170000 {
	case 0o040000:
		mode |= fs.ModeDir
	case 0o120000:
		mode |= fs.ModeSymlink
	case 0o010000:
		mode |= fs.ModeNamedPipe
	case 0o140000:
		mode |= fs.ModeSocket
	case 0o060000:
		mode |= fs.ModeDevice
	case 0o020000:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	}
	if m&0o4000 != 0 {
		mode |= fs.ModeSetuid
	}
	if m&0o2000 != 0 {
		mode |= fs.ModeSetgid
	}
	if m&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// Mkdir makes one directory, mode 0755, that belongs to owner; its parent must
// exist. fs.ErrExist where the path exists already.
func (c *Conn) Mkdir(ctx context.Context, path string, owner User) error {
	m := wire.Mkdir{Path: path, Mode: 0o755, UID: owner.UID, GID: owner.GID}
	_, err := c.call(ctx, wire.KindMkdir, m.Append(nil))
	return pathError("mkdir", path, err)
}

// ReadFile opens a regular file with root's rights; symlinks are followed.
// ErrNotRegular for anything else, at once. ctx bounds the reading too; the
// caller closes the reader. A reader that is read slowly holds up nobody.
func (c *Conn) ReadFile(ctx context.Context, path string) (io.ReadCloser, FileInfo, error) {
	s, err := c.open()
	if err != nil {
		return nil, FileInfo{}, err
	}
	octx, stop := withTimeout(ctx)
	defer stop()
	m := wire.Path{Path: path}
	if err := s.send(octx, wire.KindRead, m.Append(nil)); err != nil {
		s.close()
		return nil, FileInfo{}, err
	}
	f, _, err := s.recv(octx)
	if err != nil {
		s.cancel()
		return nil, FileInfo{}, pathError("open", path, err)
	}
	var st wire.Stat
	if f.kind != wire.KindOK || st.Decode(f.data) != nil {
		return nil, FileInfo{}, s.protocol("malformed answer to read")
	}
	return &fileReader{ctx: ctx, s: s, path: path}, fileInfo(&st), nil
}

// fileReader reads a file's content from its stream.
type fileReader struct {
	ctx   context.Context
	s     *stream
	path  string
	rest  []byte
	taken int64 // bytes that the agent was not yet allowed again
	err   error
}

// creditEvery is after how many bytes the agent is allowed as many more.
const creditEvery = wire.Window / 4

func (r *fileReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.rest) == 0 && r.err == nil {
		r.err = r.fetch()
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// WriteTo spares io.Copy a buffer.
func (r *fileReader) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for {
		if len(r.rest) > 0 {
			n, err := w.Write(r.rest)
			total += int64(n)
			r.rest = r.rest[n:]
			if err != nil {
				return total, err
			}
			continue
		}
		if r.err == nil {
			r.err = r.fetch()
			continue
		}
		if errors.Is(r.err, io.EOF) {
			return total, nil
		}
		return total, r.err
	}
}

func (r *fileReader) fetch() error {
	ctx, stop := withTimeout(r.ctx)
	defer stop()
	if r.taken >= creditEvery {
		m := wire.Offset{N: r.taken}
		if err := r.s.send(ctx, wire.KindCredit, m.Append(nil)); err != nil {
			return pathError("read", r.path, err)
		}
		r.taken = 0
	}
	f, _, err := r.s.recv(ctx)
	switch {
	case err != nil:
		return pathError("read", r.path, err)
	case f.kind == wire.KindEnd:
		return io.EOF
	case f.kind != wire.KindData:
		return r.s.protocol("frame of the wrong kind in a file")
	}
	r.rest = f.data
	r.taken += int64(len(f.data))
	return nil
}

// Close ends the reading.
func (r *fileReader) Close() error {
	if errors.Is(r.err, io.EOF) {
		r.s.close()
	} else if !errors.Is(r.err, fs.ErrClosed) {
		r.s.cancel()
	}
	r.err, r.rest = fs.ErrClosed, nil
	return nil
}
