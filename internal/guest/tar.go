package guest

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// ErrArchive: the stream is no tar archive, is cut short, or holds what a
// sandbox cannot have (a device).
var ErrArchive = errors.New("bad tar archive")

// commitTimeout bounds the renaming where ctx has no deadline.
const commitTimeout = 5 * time.Minute

// WriteTar unpacks a plain tar stream below dir with root's rights: parents
// are made, all that is new belongs to owner, files replace what has their
// name. Everything is written beside its final name and renamed only after
// the stream's end, when verify (unless nil) agreed; on any error before that
// nothing is. Errors: r's, verify's, ErrArchive, ErrNoSpace, and the io/fs
// ones in an *fs.PathError.
func (c *Conn) WriteTar(ctx context.Context, dir string, owner User, r io.Reader, verify func() error) error {
	if !path.IsAbs(dir) {
		return &fs.PathError{Op: "unpack", Path: dir, Err: errors.New("path must be absolute")}
	}
	s, err := c.open()
	if err != nil {
		return err
	}
	u := &unpacking{ctx: ctx, s: s, dir: path.Clean(dir), links: map[string]string{}, credit: wire.Window}
	m := wire.Tx{UID: owner.UID, GID: owner.GID}
	u.out = wire.AppendFrame(u.out, s.id, wire.KindTx, m.Append(nil))
	if err := u.run(r, verify); err != nil {
		s.cancel()
		return fmt.Errorf("unpack into %s: %w", dir, err)
	}
	s.close()
	return nil
}

// unpacking is one WriteTar.
type unpacking struct {
	ctx    context.Context
	s      *stream
	dir    string
	links  map[string]string // symlinks of this archive: they have no final name yet
	out    []byte            // frames that are not sent
	credit int64             // bytes of bodies that the agent takes
}

func (u *unpacking) run(r io.Reader, verify func() error) error {
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return archiveError(err)
		}
		if err := u.entry(h, tr); err != nil {
			return err
		}
	}
	// What follows the archive is not ours, but an error in it is: a
	// compressed stream's checksum comes last.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return archiveError(err)
	}
	if verify != nil {
		if err := verify(); err != nil {
			return err
		}
	}
	return u.commit()
}

// archiveError marks the errors of package tar as ErrArchive; the reader's own
// stay what they are.
func archiveError(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrFieldTooLong) {
		return fmt.Errorf("%w: %w", ErrArchive, err)
	}
	return fmt.Errorf("read the archive: %w", err)
}

func (u *unpacking) entry(h *tar.Header, body io.Reader) error {
	e := wire.Entry{Mode: uint32(h.Mode & 0o7777), MtimeNS: h.ModTime.UnixNano()}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		e.Type = wire.EntryFile
	case tar.TypeDir:
		e.Type = wire.EntryDir
	case tar.TypeSymlink:
		e.Type, e.Target = wire.EntrySymlink, h.Linkname
	case tar.TypeLink:
		e.Type, e.Target = wire.EntryHardlink, u.place(h.Linkname)
	case tar.TypeFifo:
		e.Type = wire.EntryFIFO
	case tar.TypeXGlobalHeader:
		return nil
	default:
		return fmt.Errorf("%w: %q is of a kind (%q) that cannot be unpacked", ErrArchive, h.Name, h.Typeflag)
	}
	e.Path = u.place(h.Name)
	if strings.ContainsRune(e.Path, 0) || strings.ContainsRune(e.Target, 0) {
		return fmt.Errorf("%w: a name holds a NUL", ErrArchive)
	}
	delete(u.links, e.Path)
	if e.Type == wire.EntrySymlink {
		u.links[e.Path] = e.Target
	}
	if err := u.add(wire.KindEntry, e.Append(nil)); err != nil {
		return err
	}
	if e.Type != wire.EntryFile {
		return nil
	}
	return u.body(body)
}

// place is where a name of the archive goes. Directories that are symlinks of
// the same archive are replaced by what they point to.
func (u *unpacking) place(name string) string {
	p := path.Join(u.dir, name)
	for range 40 { // as many symlinks as a kernel follows
		next, changed := u.follow(p)
		if !changed {
			break
		}
		p = next
	}
	return p
}

func (u *unpacking) follow(p string) (string, bool) {
	if len(u.links) == 0 {
		return p, false
	}
	for i := 1; i < len(p); i++ {
		if p[i] != '/' {
			continue
		}
		target, ok := u.links[p[:i]]
		if !ok {
			continue
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(p[:i]), target)
		}
		return path.Join(target, p[i:]), true
	}
	return p, false
}

// body sends a file's content.
func (u *unpacking) body(r io.Reader) error {
	for {
		if len(u.out) > wire.MaxPayload/2 {
			if err := u.flush(); err != nil {
				return err
			}
		}
		at := len(u.out)
		u.out = append(u.out, make([]byte, wire.HeaderSize)...)
		n, err := u.readBody(r)
		if n == 0 {
			u.out = u.out[:at]
		} else {
			wire.PutHeader(u.out[at:], wire.Header{Stream: u.s.id, Kind: wire.KindBody, Len: n})
			if err := u.spend(int64(n)); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return archiveError(err)
		}
	}
}

// readBody appends at most a frame's worth of r to out.
func (u *unpacking) readBody(r io.Reader) (int, error) {
	const piece = wire.MaxPayload / 2
	at := len(u.out)
	if cap(u.out)-at < piece {
		u.out = append(make([]byte, 0, 2*wire.MaxPayload), u.out...)
	}
	n, err := io.ReadFull(r, u.out[at:at+piece])
	u.out = u.out[:at+n]
	if err == io.ErrUnexpectedEOF && n > 0 {
		// The file's end, or the archive's: only the next read tells.
		var one [1]byte
		m, again := r.Read(one[:])
		u.out = append(u.out, one[:m]...)
		return n + m, again
	}
	return n, err
}

// spend waits until the agent takes n more bytes of bodies.
func (u *unpacking) spend(n int64) error {
	u.credit -= n
	for {
		wait := u.credit < 0
		if wait {
			if err := u.flush(); err != nil {
				return err
			}
		}
		if err := u.hear(wait); err != nil {
			return err
		}
		if u.credit >= 0 {
			return nil
		}
	}
}

// hear takes what the agent has said so far: credit, or that it failed.
func (u *unpacking) hear(wait bool) error {
	for {
		var f frame
		var err error
		if wait {
			ctx, stop := withTimeout(u.ctx)
			f, _, err = u.s.recv(ctx)
			stop()
		} else {
			var ok bool
			if f, _, ok, err = u.s.poll(); err == nil && !ok {
				return nil
			}
		}
		if err != nil {
			return err
		}
		var m wire.Offset
		switch {
		case f.kind == wire.KindErr:
			return u.s.failure(f.data)
		case f.kind != wire.KindCredit || m.Decode(f.data) != nil || m.N > wire.Window:
			return u.s.protocol("frame of the wrong kind in a transaction")
		}
		if u.credit += m.N; u.credit > wire.Window {
			return u.s.protocol("more credit than was spent")
		}
		wait = false
	}
}

// add queues a frame; small ones travel together.
func (u *unpacking) add(k wire.Kind, p []byte) error {
	u.out = wire.AppendFrame(u.out, u.s.id, k, p)
	if len(u.out) > wire.MaxPayload/2 {
		return u.flush()
	}
	return nil
}

func (u *unpacking) flush() error {
	if len(u.out) == 0 {
		return nil
	}
	err := u.s.c.write(u.ctx, u.out)
	u.out = u.out[:0]
	return err
}

func (u *unpacking) commit() error {
	if err := u.add(wire.KindCommit, nil); err != nil {
		return err
	}
	if err := u.flush(); err != nil {
		return err
	}
	ctx := u.ctx
	if _, ok := ctx.Deadline(); !ok {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, commitTimeout)
		defer stop()
	}
	for {
		f, _, err := u.s.recv(ctx)
		switch {
		case err != nil:
			return err
		case f.kind == wire.KindOK:
			return nil
		case f.kind != wire.KindCredit:
			return u.s.protocol("frame of the wrong kind in a transaction")
		}
	}
}
