package main

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

const (
	// maxTxs bounds the open transactions of a session, maxEntries the
	// objects of one.
	maxTxs     = 64
	maxEntries = 1 << 20
	// txTurn is how many names a transaction gives or removes before others
	// have their turn.
	txTurn = 64
	// txTurnCost bounds the removal of directories in a turn, of which each
	// costs dirCost and its path's length.
	txTurnCost = 16 << 10
	dirCost    = 128
	// creditPiece is after how many bytes the host is allowed more.
	creditPiece = 256 << 10
)

// tx is a transaction: objects are made under temporary names beside their
// final ones, and renamed only when the host has sent and verified all.
// Directories are made at once, since what is in them needs them.
type tx struct {
	s        *session
	id       uint32
	uid, gid int
	temps    []temp
	finals   map[string]int  // index in temps by final path
	dirs     []txDir         // made by this transaction, parents first
	known    map[string]bool // directories; true: made by this transaction
	prefix   string          // of temporary names
	parent   string          // directory that parentFD is open on
	parentFD int
	cur      int // descriptor of the file that Body fills, or -1
	entry    wire.Entry
	owed     int64 // bytes taken since the last Credit
	next     int   // of temps: the next to be renamed or removed
	undoing  bool
	// committing: the host's word is given, and nothing but an error stops
	// the renaming.
	committing bool
}

// temp is an object under its temporary name.
type temp struct {
	dir, name, final string
	link             bool
}

type txDir struct {
	path     string
	explicit bool // Mode and Mtime are the archive's
	mode     uint32
	mtimeNS  int64
}

func (s *session) openTx(id uint32, p []byte) {
	var m wire.Tx
	if m.Decode(p) != nil {
		s.fail(id, badRequest)
		return
	}
	if s.txs >= maxTxs {
		s.fail(id, &wire.Failure{Code: wire.CodeLimit, Text: "transactions of a session"})
		return
	}
	s.txs++
	s.a.txCount++
	t := &tx{s: s, id: id, uid: int(m.UID), gid: int(m.GID), finals: map[string]int{}, known: map[string]bool{},
		prefix: wire.TempPrefix + itoa(s.a.txCount) + "-", parentFD: -1, cur: -1}
	s.open(id, t, nil)
}

func (t *tx) frame(k wire.Kind, p []byte) bool {
	var f *wire.Failure
	switch {
	case t.committing:
		return false
	case k == wire.KindEntry:
		var e wire.Entry
		if e.Decode(p) != nil {
			return false
		}
		if f = t.finishFile(); f == nil {
			t.entry = e
			f = t.add()
		}
	case k == wire.KindBody:
		if t.cur < 0 {
			return false
		}
		if err := writeAll(t.cur, p); err != nil {
			f = t.failure("write", err)
		}
		t.credit(int64(len(p)))
	case k == wire.KindCommit:
		if f = t.finishFile(); f == nil {
			t.committing = true
			t.s.a.touch(t)
		}
	default:
		return false
	}
	if f != nil {
		t.fail(f)
	}
	return true
}

func (t *tx) failure(op string, err error) *wire.Failure {
	f := errnoFailure(op, err)
	f.Path = t.entry.Path
	return f
}

func (t *tx) fail(f *wire.Failure) {
	t.s.drop(t.id)
	t.s.fail(t.id, f)
	t.committing = false
	t.stop()
}

func (t *tx) credit(n int64) {
	if t.owed += n; t.owed >= creditPiece {
		m := wire.Offset{N: t.owed}
		t.owed = 0
		t.s.reply(t.id, wire.KindCredit, m.Append(nil))
	}
}

// add makes the entry's object.
func (t *tx) add() *wire.Failure {
	e := &t.entry
	if len(t.temps)+len(t.dirs) >= maxEntries {
		return &wire.Failure{Code: wire.CodeLimit, Text: "objects of a transaction"}
	}
	if e.Type == wire.EntryDir {
		if err := t.ensureDir(e.Path, true); err != nil {
			return t.failure("mkdir", err)
		}
		return nil
	}
	dir, base := split(e.Path)
	if base == "" {
		return t.failure("write", syscall.EISDIR)
	}
	if err := t.enter(dir); err != nil {
		return t.failure("write", err)
	}
	if err := t.replaceable(dir, base); err != nil {
		return t.failure("write", err)
	}
	name := t.prefix + itoa(len(t.temps))
	if err := t.create(name); err != nil {
		return t.failure("write", err)
	}
	t.finals[e.Path] = len(t.temps)
	t.temps = append(t.temps, temp{dir: dir, name: name, final: base, link: e.Type == wire.EntryHardlink})
	return nil
}

// replaceable fails where a directory has the final name. In a directory that
// this transaction has made, only one that it has made as well could.
func (t *tx) replaceable(dir, base string) error {
	if t.known[dir] {
		if _, ok := t.known[t.entry.Path]; !ok && len(base) <= 255 {
			return nil
		}
	}
	var st unix.Stat_t
	switch err := unix.Fstatat(t.parentFD, base, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err == syscall.ENOENT:
		return nil
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return syscall.EISDIR
	default:
		return err
	}
}

// asCreated tells whether a file of the entry's mode has that mode when it is
// created, so that no chmod is needed.
func asCreated(mode uint32) bool { return mode&^0o755 == 0 }

// create makes the object under its temporary name in parentFD.
func (t *tx) create(name string) (err error) {
	e := &t.entry
	switch e.Type {
	case wire.EntryFile:
		t.cur, err = syscall.Openat(t.parentFD, name, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, e.Mode&0o755)
		return err
	case wire.EntryHardlink:
		from := e.Target
		if i, ok := t.finals[from]; ok {
			from = t.temps[i].dir + "/" + t.temps[i].name
		}
		return unix.Linkat(unix.AT_FDCWD, from, t.parentFD, name, 0)
	case wire.EntrySymlink:
		err = unix.Symlinkat(e.Target, t.parentFD, name)
	case wire.EntryFIFO:
		err = unix.Mknodat(t.parentFD, name, unix.S_IFIFO|e.Mode&0o7777, 0)
	}
	if err != nil {
		return err
	}
	err = unix.Fchownat(t.parentFD, name, t.uid, t.gid, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil {
		ts := times(e.MtimeNS)
		err = unix.UtimesNanoAt(t.parentFD, name, ts[:], unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		_ = unix.Unlinkat(t.parentFD, name, 0)
	}
	return err
}

// finishFile gives the file that Body filled its attributes.
func (t *tx) finishFile() *wire.Failure {
	if t.cur < 0 {
		return nil
	}
	e := &t.entry
	err := syscall.Fchown(t.cur, t.uid, t.gid)
	if err == nil && !asCreated(e.Mode) { // after chown, which takes the setuid bits away
		err = syscall.Fchmod(t.cur, e.Mode&0o7777)
	}
	if err == nil {
		ts := times(e.MtimeNS)
		err = futimens(t.cur, &ts)
	}
	if e := syscall.Close(t.cur); err == nil {
		err = e
	}
	t.cur = -1
	if err != nil {
		return t.failure("write", err)
	}
	return nil
}

// enter opens the directory that the next object is made in.
func (t *tx) enter(dir string) error {
	if t.parentFD >= 0 && dir == t.parent {
		return nil
	}
	if err := t.ensureDir(dir, false); err != nil {
		return err
	}
	return t.openParent(dir)
}

func (t *tx) openParent(dir string) error {
	fd, err := syscall.Open(dir, dirFlags, 0)
	if err != nil {
		return err
	}
	t.closeParent()
	t.parent, t.parentFD = dir, fd
	return nil
}

func (t *tx) closeParent() {
	if t.parentFD >= 0 {
		_ = syscall.Close(t.parentFD)
		t.parentFD = -1
	}
}

// ensureDir makes a directory and its parents where they are missing. One
// that exists keeps its owner and mode, also when the archive names it.
func (t *tx) ensureDir(path string, explicit bool) error {
	made, ok := t.known[path]
	if !ok {
		var err error
		if made, err = t.makeDir(path); err != nil {
			return err
		}
	}
	if !explicit || !made {
		return nil
	}
	for i := range t.dirs {
		if d := &t.dirs[len(t.dirs)-1-i]; d.path == path {
			d.explicit, d.mode, d.mtimeNS = true, t.entry.Mode&0o7777, t.entry.MtimeNS
			break
		}
	}
	return nil
}

// makeDir makes what is missing of path, from the nearest directory that is
// known on downwards and each by its name in its parent: by its path, each of
// a thousand levels would be walked from the root.
func (t *tx) makeDir(path string) (made bool, err error) {
	at := path
	for at != "/" {
		if _, ok := t.known[at]; ok {
			break
		}
		at, _ = split(at)
	}
	fd, err := syscall.Open(at, dirFlags, 0)
	end := len(at)
	if at == "/" {
		end = 0
	}
	for err == nil && end < len(path) && path != "/" {
		start := end + 1
		for end = start; end < len(path) && path[end] != '/'; end++ {
		}
		parent := fd
		made, fd, err = t.step(parent, path[start:end], path[:end])
		_ = syscall.Close(parent)
		if err == nil {
			t.known[path[:end]] = made
		}
	}
	if err == nil {
		_ = syscall.Close(fd)
	}
	return made, err
}

const dirFlags = unix.O_PATH | syscall.O_DIRECTORY | syscall.O_CLOEXEC

// step opens a directory by its name in parent, and makes it where there is
// none; path is its own.
func (t *tx) step(parent int, name, path string) (made bool, fd int, err error) {
	fd, err = syscall.Openat(parent, name, dirFlags, 0)
	if err != syscall.ENOENT {
		return false, fd, err
	}
	switch err = unix.Mkdirat(parent, name, 0o755); err {
	case nil:
		made = true
		t.dirs = append(t.dirs, txDir{path: path})
		if err = unix.Fchownat(parent, name, t.uid, t.gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return true, -1, err
		}
	case syscall.EEXIST: // made by somebody else a moment ago
	default:
		return false, -1, err
	}
	fd, err = syscall.Openat(parent, name, dirFlags, 0)
	return made, fd, err
}

// split cuts a clean absolute path before its last element.
func split(path string) (dir, base string) {
	for i := len(path) - 1; i > 0; i-- {
		if path[i] == '/' {
			return path[:i], path[i+1:]
		}
	}
	return "/", path[1:]
}

func times(mtimeNS int64) [2]unix.Timespec {
	return [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(mtimeNS)}
}
