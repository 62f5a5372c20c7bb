package main

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// readPiece bounds the bytes of a file in a frame.
const readPiece = 128 << 10

var notRegular = &wire.Failure{Code: wire.CodeNotRegular}

func (s *session) stat(id uint32, p []byte) {
	var m wire.Path
	if m.Decode(p) != nil {
		s.fail(id, badRequest)
		return
	}
	var st unix.Stat_t
	if err := unix.Fstatat(unix.AT_FDCWD, m.Path, &st, 0); err != nil {
		s.fail(id, errnoFailure("stat", err))
		return
	}
	s.reply(id, wire.KindOK, statMessage(&st))
}

func statMessage(st *unix.Stat_t) []byte {
	m := wire.Stat{Size: st.Size, Mode: st.Mode, UID: st.Uid, GID: st.Gid, MtimeNS: st.Mtim.Nano()}
	return m.Append(nil)
}

func (s *session) mkdir(id uint32, p []byte) {
	var m wire.Mkdir
	if m.Decode(p) != nil {
		s.fail(id, badRequest)
		return
	}
	if err := syscall.Mkdir(m.Path, m.Mode&0o7777); err != nil {
		s.fail(id, errnoFailure("mkdir", err))
		return
	}
	err := syscall.Lchown(m.Path, int(m.UID), int(m.GID))
	if err == nil {
		err = syscall.Chmod(m.Path, m.Mode&0o7777) // whatever the umask says
	}
	if err != nil {
		_ = syscall.Rmdir(m.Path)
		s.fail(id, errnoFailure("mkdir", err))
		return
	}
	s.ok(id)
}

// openRegular opens a regular file for reading and nothing else: to open
// another kind may wait, or do something.
func openRegular(path string) (int, *unix.Stat_t, *wire.Failure) {
	var st unix.Stat_t
	if err := unix.Fstatat(unix.AT_FDCWD, path, &st, 0); err != nil {
		return -1, nil, errnoFailure("open", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, nil, notRegular
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1, nil, errnoFailure("open", err)
	}
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = syscall.Close(fd) // another file took the path meanwhile
		return -1, nil, notRegular
	}
	return fd, &st, nil
}

// reading sends a file's content.
type reading struct {
	s      *session
	id     uint32
	fd     int
	credit int64 // bytes that the host still takes
}

// maxReads bounds the files that a session reads at once.
const maxReads = 256

func (s *session) readFile(id uint32, p []byte) {
	var m wire.Path
	if m.Decode(p) != nil {
		s.fail(id, badRequest)
		return
	}
	if s.reads >= maxReads {
		s.fail(id, &wire.Failure{Code: wire.CodeLimit, Text: "files that are read at once"})
		return
	}
	fd, st, f := openRegular(m.Path)
	if f != nil {
		s.fail(id, f)
		return
	}
	s.reads++
	s.reply(id, wire.KindOK, statMessage(st))
	r := &reading{s: s, id: id, fd: fd, credit: wire.Window}
	s.open(id, r, r)
}

func (r *reading) frame(k wire.Kind, p []byte) bool {
	var m wire.Offset
	if k != wire.KindCredit || m.Decode(p) != nil || m.N > wire.Window {
		return false
	}
	r.credit += m.N
	r.s.wake()
	return r.credit <= wire.Window
}

func (r *reading) stop() {
	r.s.reads--
	_ = syscall.Close(r.fd)
}

func (r *reading) fill() bool {
	if r.credit <= 0 {
		return false
	}
	s := r.s
	at := len(s.out)
	b := s.a.scratch[:min(r.credit, readPiece)]
	n, err := syscall.Read(r.fd, b)
	switch {
	case err == syscall.EINTR:
		return true
	case err != nil:
		s.fail(r.id, errnoFailure("read", err))
	case n == 0:
		s.reply(r.id, wire.KindEnd, nil)
	default:
		r.credit -= int64(n)
		s.out = wire.AppendFrame(s.out, r.id, wire.KindData, b[:n])
		return true
	}
	s.drop(r.id)
	r.stop()
	return len(s.out) > at
}
