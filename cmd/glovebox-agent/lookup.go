package main

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// defaultPath is what execvp(3) searches without a PATH.
const defaultPath = "/bin:/usr/bin"

// maxCandidates bounds the directories of a PATH that are tried.
const maxCandidates = 256

// candidates are the paths at which a program may be, in order.
func candidates(name string, env []string) []string {
	if name == "" {
		return []string{""}
	}
	for i := range len(name) {
		if name[i] == '/' {
			return []string{name}
		}
	}
	path := defaultPath
	for _, e := range env {
		if len(e) >= 5 && e[:5] == "PATH=" {
			path = e[5:]
			break
		}
	}
	var l []string
	for start := 0; start <= len(path) && len(l) < maxCandidates; {
		end := start
		for end < len(path) && path[end] != ':' {
			end++
		}
		if dir := path[start:end]; dir == "" {
			l = append(l, name) // an empty element is the working directory
		} else {
			l = append(l, dir+"/"+name)
		}
		start = end + 1
	}
	return l
}

// refused is which of the paths, none of which could be executed, says why.
// Not every EACCES is one of the program's own: a directory of the PATH may be
// closed to the user, or hold a directory of the program's name.
func refused(name string, paths []string, tried []step) (string, syscall.Errno) {
	for i, p := range paths {
		if tried[i].errno == uintptr(syscall.EACCES) && (hasSlash(name) || exists(p) && !isDir(p)) {
			return p, syscall.EACCES
		}
	}
	last := len(paths) - 1
	errno := syscall.Errno(tried[last].errno)
	if !hasSlash(name) {
		errno = syscall.ENOENT
	}
	return paths[last], errno
}

// absolute is a path that was relative to a command's directory.
func absolute(dir, path string) string {
	if path == "" || path[0] == '/' {
		return path
	}
	return dir + "/" + path
}

// notExecuted makes the log of a command whose program could not be executed:
// the words and codes that a shell has for it.
func (c *command) notExecuted(name, path string, errno syscall.Errno) {
	for _, o := range c.out {
		o.close()
	}
	c.code = 126
	why := errno.Error()
	switch errno {
	case syscall.ENOENT:
		c.code = 127
		why = "command not found"
		if hasSlash(name) {
			why = "no such file or directory"
			if exists(path) {
				why = "bad interpreter: no such file or directory"
			}
		}
	case syscall.EACCES:
		why = "permission denied"
		if isDir(path) {
			why = "is a directory"
		}
	}
	kind, end := wire.RecordStderr, "\n"
	if c.tty {
		kind, end = wire.RecordStdout, "\r\n"
	}
	msg := name + ": " + why + end
	if len(msg) > 1024 {
		msg = msg[:512] + "…: " + why + end
	}
	c.ring.room(len(msg))
	var h [wire.RecordHeaderSize]byte
	wire.PutRecordHeader(h[:], kind, len(msg))
	c.ring.append(append(h[:], msg...))
	c.exited = true
	c.finish()
}

func hasSlash(s string) bool {
	for i := range len(s) {
		if s[i] == '/' {
			return true
		}
	}
	return false
}

func exists(path string) bool {
	var st unix.Stat_t
	return unix.Fstatat(unix.AT_FDCWD, path, &st, 0) == nil
}

func isDir(path string) bool {
	var st unix.Stat_t
	return unix.Fstatat(unix.AT_FDCWD, path, &st, 0) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

func itoa(n int) string {
	if n == 0 {
		return "0"
	}
	var b [20]byte
	i := len(b)
	for v := n; v > 0; v /= 10 {
		i--
		b[i] = byte('0' + v%10)
	}
	return string(b[i:])
}
