//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command glovebox-agent is the first process of every sandbox. It makes the
// root out of the layers, starts and reaps processes, keeps their output
// until the host has stored it, and reads and writes files, all by order of
// the host at the other end of the network cable.
//
// It is one goroutine in one loop over descriptors (hand-offs between threads
// are what a guest kernel is slowest at) and imports little,
// since the Go runtime's start is part of every sandbox's. See
// docs/decisions/0005-agent-in-go.md.
package main

import (
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

func main() {
	if syscall.Getpid() != 1 {
		return // Warmup runs this binary once to warm what a start needs
	}
	runtime.GOMAXPROCS(1) // with one the runtime wakes no second thread to help
	a, err := newAgent()
	if err != nil {
		fatal(err)
	}
	fatal(a.run())
}

// fatal ends the sandbox; the host sees the machine end.
func fatal(err error) {
	msg := "glovebox-agent: " + err.Error() + "\n"
	_, _ = syscall.Write(2, []byte(msg))
	syscall.Exit(1)
}

// agent is all state of the process. Everything runs on the loop's goroutine.
type agent struct {
	loop
	secret    [32]byte
	hasSecret bool
	assembled bool
	warming   map[int]bool // pids of Warmup that are not reaped yet
	sessions  map[*session]bool
	splices   map[*splice]bool
	pending   int // connections that have not said who they are
	commands  map[string]*command
	byPID     map[int]*command
	finished  []*command // oldest first
	cgroups   cgroups
	orphans   timer
	txCount   int    // transactions so far
	scratch   []byte // for bytes that live no longer than one call
}

const scratchSize = 256 << 10

func newAgent() (*agent, error) {
	a := &agent{
		warming:  map[int]bool{},
		sessions: map[*session]bool{},
		splices:  map[*splice]bool{},
		commands: map[string]*command{},
		byPID:    map[int]*command{},
		scratch:  make([]byte, scratchSize),
	}
	syscall.Umask(0o022)
	_ = unix.CloseRange(3, 1<<31-1, 0) // whatever came with the start is not for commands
	quietSignals()
	if err := nullStdin(); err != nil {
		return nil, opErr("open /dev/null", err)
	}
	if err := a.loop.init(); err != nil {
		return nil, opErr("epoll", err)
	}
	return a, a.listen()
}

// nullStdin makes /dev/null the agent's stdin, which children without a stdin
// of their own inherit, and sees to it that descriptors 1 and 2 are taken, so
// that none that the agent opens ever is one that a child replaces.
func nullStdin() error {
	for {
		fd, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if fd > 2 {
			err = syscall.Dup3(fd, 0, 0)
			_ = syscall.Close(fd)
			return err
		}
	}
}

// listener accepts connections from the gateway.
type listener struct {
	a     *agent
	fd    int
	again timer // ends a pause
}

// maxPending bounds the connections that have not identified themselves.
const maxPending = 64

func (a *agent) listen() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return opErr("socket", err)
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return opErr("reuse address", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: wire.GuestIP, Port: wire.AgentPort}); err != nil {
		return opErr("bind", err)
	}
	if err := syscall.Listen(fd, 128); err != nil {
		return opErr("listen", err)
	}
	return a.add(fd, unix.EPOLLIN, &listener{a: a, fd: fd})
}

func (l *listener) event(uint32) {
	fd, from, err := syscall.Accept4(l.fd, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
	if err == syscall.EMFILE || err == syscall.ENFILE {
		l.pause()
		return
	}
	if err != nil {
		return // EAGAIN, or a connection that is gone already
	}
	in4, ok := from.(*syscall.SockaddrInet4)
	if !ok || in4.Addr != wire.GatewayIP || l.a.pending >= maxPending {
		_ = syscall.Close(fd)
		return
	}
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	l.a.greet(fd)
}

// pause leaves connections waiting for a while: there are no descriptors left,
// and to be told so again and again helps nobody.
func (l *listener) pause() {
	l.a.mod(l.fd, 0)
	l.again.f = func() { l.a.mod(l.fd, unix.EPOLLIN) }
	l.a.arm(&l.again, time.Now().Add(100*time.Millisecond))
}

// opError is an error with the operation that it came from.
type opError struct {
	op  string
	err error
}

func opErr(op string, err error) error { return &opError{op, err} }
func (e *opError) Error() string       { return e.op + ": " + e.err.Error() }
func (e *opError) Unwrap() error       { return e.err }
