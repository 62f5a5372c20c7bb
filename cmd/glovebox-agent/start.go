package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

const sigSetmask = 2 // SIG_SETMASK

// start starts a command; one that is known already is left alone. A program
// that cannot be executed is no failure: its log says so.
func (a *agent) start(m *wire.Start) *wire.Failure {
	if a.commands[m.ID] != nil {
		return nil
	}
	if len(a.commands) >= maxCommands {
		return &wire.Failure{Code: wire.CodeLimit, Text: "commands of a sandbox"}
	}
	c := &command{a: a, id: m.ID, pidfd: -1, tty: m.Flags&wire.FlagTTY != 0}
	fds, err := c.wire(m)
	defer fds.closeChild()
	if err == nil {
		c.cgroup, err = a.cgroups.get()
	}
	if err != nil {
		c.abandon()
		return errnoFailure("start", err)
	}
	path, errno, f := c.exec(m, fds)
	if f != nil {
		c.abandon()
		return f
	}
	if errno == 0 {
		err = c.watch()
	}
	if err != nil {
		// Nothing would ever tell of this process's output or end.
		_ = syscall.Kill(-c.pid, syscall.SIGKILL)
		a.tick()
		c.abandon()
		return errnoFailure("start", err)
	}
	a.commands[m.ID] = c
	if errno == 0 {
		a.byPID[c.pid] = c
		a.tick()
		c.alone()
		return nil
	}
	c.notExecuted(m.Argv[0], absolute(m.Dir, path), errno)
	return nil
}

// childFDs are the descriptors of one start: what the child gets as 0, 1, 2.
// -1: it inherits the agent's.
type childFDs struct{ std [3]int }

func (f *childFDs) closeChild() {
	for i, fd := range f.std {
		if fd >= 0 && (i == 0 || fd != f.std[0]) {
			_ = syscall.Close(fd)
		}
		f.std[i] = -1
	}
}

// wire makes the pipes or the terminal.
func (c *command) wire(m *wire.Start) (*childFDs, error) {
	f := &childFDs{std: [3]int{-1, -1, -1}}
	if c.tty {
		master, slave, err := openTerminal(m)
		if err != nil {
			return f, err
		}
		f.std = [3]int{slave, slave, slave}
		o := &output{c: c, fd: master, kind: wire.RecordStdout, polite: true}
		c.out = []*output{o}
		c.in = &input{c: c, fd: master, term: o}
		return f, nil
	}
	for i, k := range []wire.RecordKind{wire.RecordStdout, wire.RecordStderr} {
		var p [2]int
		if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC); err != nil {
			return f, err
		}
		f.std[1+i] = p[1]
		c.out = append(c.out, &output{c: c, fd: p[0], kind: k})
	}
	if m.Flags&wire.FlagStdin == 0 {
		return f, nil
	}
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC); err != nil {
		return f, err
	}
	f.std[0] = p[0]
	c.in = &input{c: c, fd: p[1]}
	return f, syscall.SetNonblock(p[1], true)
}

// watch adds what the running command is known by to the loop.
func (c *command) watch() error {
	for _, o := range c.out {
		if err := c.a.add(o.fd, unix.EPOLLIN, o); err != nil {
			return err
		}
	}
	return c.a.add(c.pidfd, unix.EPOLLIN, c)
}

// abandon undoes a start.
func (c *command) abandon() {
	for _, o := range c.out {
		o.close()
	}
	if c.in != nil {
		c.in.close()
	}
	if c.pidfd >= 0 {
		c.a.close(c.pidfd)
	}
	c.a.cgroups.put(c.cgroup)
	c.cgroup = nil
}

// openTerminal makes a terminal that the command's user owns.
func openTerminal(m *wire.Start) (master, slave int, err error) {
	master, err = syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return -1, -1, opErr("open /dev/ptmx", err)
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = setSize(master, m.Rows, m.Cols)
	}
	if err == nil {
		slave, err = syscall.Open("/dev/pts/"+itoa(n), syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	}
	if err != nil {
		_ = syscall.Close(master)
		return -1, -1, opErr("open a terminal", err)
	}
	// Programs that open their terminal by name need to own it; a kernel that
	// does not let it be given away is not a reason to fail.
	_ = syscall.Fchown(slave, int(m.UID), int(m.GID))
	_ = syscall.Fchmod(slave, 0o620)
	return master, slave, nil
}

func setSize(fd int, rows, cols uint16) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
}

// childProgram are the steps of a command's child up to its execve, and the
// index of the chdir among them.
func (c *command) childProgram(m *wire.Start, fds *childFDs, dir *byte, groups *uint32) (chdir int) {
	s := append(childSteps[:0], step{nr: syscall.SYS_SETSID})
	for i, fd := range fds.std {
		if fd < 0 {
			continue
		}
		s = append(s, step{nr: syscall.SYS_DUP3, a1: uintptr(fd), a2: uintptr(i)})
	}
	if c.tty {
		s = append(s, step{nr: syscall.SYS_IOCTL, a2: unix.TIOCSCTTY})
	}
	s = append(s,
		step{nr: syscall.SYS_WRITE, a1: uintptr(c.cgroup.procs), a2: addr(&childZero), a3: uintptr(len(childZero))})
	if m.UID != 0 || m.GID != 0 || len(m.Groups) > 0 { // else it is the agent's
		s = append(s, identity(m, groups)...)
	}
	s = append(s,
		step{nr: syscall.SYS_CHDIR, a1: uintptr(unsafe.Pointer(dir))},
		step{nr: syscall.SYS_RT_SIGPROCMASK, a1: sigSetmask, a2: addr(&noSignals), a4: 8})
	childSteps = s
	return len(s) - 2
}

// identity are the steps that make a child another user's.
func identity(m *wire.Start, groups *uint32) []step {
	return []step{
		{nr: syscall.SYS_SETGROUPS, a1: uintptr(len(m.Groups)), a2: uintptr(unsafe.Pointer(groups))},
		{nr: syscall.SYS_SETRESGID, a1: uintptr(m.GID), a2: uintptr(m.GID), a3: uintptr(m.GID)},
		{nr: syscall.SYS_SETRESUID, a1: uintptr(m.UID), a2: uintptr(m.UID), a3: uintptr(m.UID)},
	}
}

// exec starts the process. A program that cannot be executed comes back as
// the path that was tried last and the errno.
func (c *command) exec(m *wire.Start, fds *childFDs) (path string, errno syscall.Errno, f *wire.Failure) {
	paths := candidates(m.Argv[0], m.Env)
	path, errno, f = c.attempt(m, fds, paths, m.Argv)
	if errno == syscall.ENOEXEC {
		argv := append([]string{"/bin/sh", path}, m.Argv[1:]...)
		shPath, shErr, shFail := c.attempt(m, fds, []string{"/bin/sh"}, argv)
		if shErr != 0 || shFail != nil {
			return shPath, shErr, shFail
		}
		errno = 0
	}
	return path, errno, f
}

// attempt tries paths in order, as execvp(3) does: EACCES is remembered, and
// any error but "not here" ends the search.
func (c *command) attempt(m *wire.Start, fds *childFDs, paths, argv []string) (string, syscall.Errno, *wire.Failure) {
	lists, err := cstrings(argv, m.Env, paths, []string{m.Dir})
	if err != nil {
		return "", 0, &wire.Failure{Code: wire.CodeBadRequest, Text: "an argument, variable or path holds a NUL"}
	}
	groups := append(append([]uint32(nil), m.Groups...), 0)
	chdir := c.childProgram(m, fds, lists[3][0], &groups[0])
	first := len(childSteps)
	for _, p := range lists[2][:len(paths)] {
		childSteps = append(childSteps, step{nr: syscall.SYS_EXECVE, a1: uintptr(unsafe.Pointer(p)),
			a2: addr(&lists[0][0]), a3: addr(&lists[1][0]), onError: nextPath})
	}
	pid, pidfd, err := spawn(lists, groups)
	if err != nil {
		return "", 0, errnoFailure("start", err)
	}
	if childFailed == noFailure && childSteps[len(childSteps)-1].errno == 0 {
		c.pid, c.pidfd = pid, pidfd
		return "", 0, nil
	}
	return c.failed(pid, pidfd, first, chdir, paths, argv, m.Dir)
}

// failed reaps a child that did not become a program and says why.
func (c *command) failed(pid, pidfd, first, chdir int, paths, argv []string, dir string) (string, syscall.Errno, *wire.Failure) {
	_ = syscall.Close(pidfd)
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
			break
		}
	}
	if childFailed == noFailure { // every path said "not here" or "not allowed"
		path, errno := refused(argv[0], paths, childSteps[first:])
		return path, errno, nil
	}
	at := int(childFailed)
	errno := syscall.Errno(childSteps[at].errno)
	switch {
	case at >= first:
		return paths[at-first], errno, nil
	case at == chdir:
		return "", 0, &wire.Failure{Code: wire.CodeNoDir, Errno: uint16(errno), Text: dir}
	}
	return "", 0, &wire.Failure{Code: wire.CodeErrno, Errno: uint16(errno), Text: "start: prepare the process, system call " + itoa(int(childSteps[at].nr))}
}
