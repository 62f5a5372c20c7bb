package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// greetTime bounds how long a new connection may take to say who it is.
const greetTime = 10 * time.Second

// greeting is a connection that has not sent its whole preface.
type greeting struct {
	a     *agent
	fd    int
	buf   [wire.PrefaceSize]byte
	have  int
	timer timer
}

func (a *agent) greet(fd int) {
	g := &greeting{a: a, fd: fd}
	if err := a.add(fd, unix.EPOLLIN, g); err != nil {
		_ = syscall.Close(fd)
		return
	}
	a.pending++
	g.timer.f = g.drop
	a.arm(&g.timer, time.Now().Add(greetTime))
	g.event(0) // the preface often is here already
}

func (g *greeting) done() {
	g.a.pending--
	g.a.disarm(&g.timer)
}

func (g *greeting) drop() {
	g.done()
	g.a.close(g.fd)
}

func (g *greeting) event(uint32) {
	n, err := syscall.Read(g.fd, g.buf[g.have:])
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return
	}
	if n <= 0 {
		g.drop()
		return
	}
	if g.have += n; g.have < len(g.buf) {
		return
	}
	var p wire.Preface
	if p.Decode(g.buf[:]) != nil {
		g.drop()
		return
	}
	if !g.a.admit(&p.Secret) {
		sendHello(g.fd, wire.CodeSecret, 0)
		g.drop()
		return
	}
	g.done()
	switch p.Mode {
	case wire.ModeSession:
		sendHello(g.fd, wire.CodeOK, 0)
		g.a.newSession(g.fd)
	default:
		g.a.dial(g.fd, p.Port)
	}
}

// admit compares the secret in constant time; the first one that comes is the
// secret. No user code runs before the host has used it.
func (a *agent) admit(secret *[32]byte) bool {
	if !a.hasSecret {
		a.secret, a.hasSecret = *secret, true
		return true
	}
	var diff byte
	for i := range secret {
		diff |= secret[i] ^ a.secret[i]
	}
	return diff == 0
}

// sendHello answers a preface; the socket's buffer is empty, so it fits.
func sendHello(fd int, code wire.Code, errno syscall.Errno) {
	_ = send(fd, []byte{byte(code), byte(errno >> 8), byte(errno)})
}

// send writes what the socket takes now.
func send(fd int, b []byte) int {
	for {
		n, err := syscall.SendmsgN(fd, b, nil, nil, syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT)
		switch err {
		case nil:
			return n
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0
		default:
			return -1
		}
	}
}
