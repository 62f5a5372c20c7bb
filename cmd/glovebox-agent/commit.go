package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// flush goes on with a commit, or with undoing, for one turn of the loop.
func (t *tx) flush() {
	if t.undoing {
		t.undo()
		return
	}
	for range txTurn {
		if t.next == len(t.temps) {
			t.finish()
			return
		}
		if err := t.rename(&t.temps[t.next]); err != nil {
			t.entry.Path = t.temps[t.next].dir + "/" + t.temps[t.next].final
			t.fail(t.failure("rename", err))
			return
		}
		t.next++
	}
	t.s.a.touch(t)
}

// rename gives an object its final name.
func (t *tx) rename(x *temp) error {
	if t.parentFD < 0 || t.parent != x.dir {
		if err := t.openParent(x.dir); err != nil {
			return err
		}
	}
	if err := unix.Renameat(t.parentFD, x.name, t.parentFD, x.final); err != nil {
		return err
	}
	if x.link { // renaming one link of a file over another of the same does nothing
		_ = unix.Unlinkat(t.parentFD, x.name, 0)
	}
	return nil
}

// finish sets what the archive says of directories, innermost first, since
// work inside changes their times.
func (t *tx) finish() {
	for i := len(t.dirs) - 1; i >= 0; i-- {
		d := &t.dirs[i]
		if !d.explicit {
			continue
		}
		ts := times(d.mtimeNS)
		err := syscall.Chmod(d.path, d.mode)
		if err == nil {
			err = unix.UtimesNanoAt(unix.AT_FDCWD, d.path, ts[:], 0)
		}
		if err != nil && err != syscall.ENOENT { // removed meanwhile: its owner may
			t.entry.Path = d.path
			t.fail(t.failure("mkdir", err))
			return
		}
	}
	t.closeParent()
	t.s.txs--
	t.s.drop(t.id)
	t.s.ok(t.id)
}

// stop undoes the transaction: it was cancelled, has failed, or the session
// is closing.
func (t *tx) stop() {
	if t.undoing || t.committing {
		return
	}
	t.undoing = true
	t.s.txs--
	if t.cur >= 0 {
		_ = syscall.Close(t.cur)
		t.cur = -1
	}
	t.s.a.touch(t)
}

// undo removes what has no final name yet, and the directories that are empty
// then.
func (t *tx) undo() {
	for range txTurn {
		if t.next == len(t.temps) {
			break
		}
		x := &t.temps[t.next]
		t.next++
		if t.parentFD < 0 || t.parent != x.dir {
			if t.openParent(x.dir) != nil {
				continue // the directory is gone, and the object with it
			}
		}
		_ = unix.Unlinkat(t.parentFD, x.name, 0)
	}
	if t.next < len(t.temps) {
		t.s.a.touch(t)
		return
	}
	t.closeParent()
	// Each path is walked from the root: the deeper, the fewer in a turn.
	for cost := 0; len(t.dirs) > 0 && cost < txTurnCost; {
		last := len(t.dirs) - 1
		_ = syscall.Rmdir(t.dirs[last].path)
		cost += dirCost + len(t.dirs[last].path)
		t.dirs = t.dirs[:last]
	}
	if len(t.dirs) > 0 {
		t.s.a.touch(t)
	}
}

func futimens(fd int, ts *[2]unix.Timespec) error {
	_, _, e := syscall.RawSyscall6(syscall.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(ts)), 0, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}
