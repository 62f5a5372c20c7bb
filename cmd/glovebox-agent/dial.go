package main

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// maxSplices bounds the connections to ports of the guest.
const maxSplices = 2048

// splice is a host's connection joined to one to a port on the loopback
// addresses.
type splice struct {
	a     *agent
	port  uint16
	v6    bool // the IPv4 address was tried
	ends  [2]end
	ready bool // connected
	over  bool
}

// end is one of the two sockets.
type end struct {
	s       *splice
	fd      int
	other   *end
	watched uint32
	buf     []byte // read from the other end, and not yet taken by this one
	eof     bool   // has no more to say
	shut    bool   // was told that the other has no more to say
}

// dial connects the host's socket to a port.
func (a *agent) dial(fd int, port uint16) {
	sp := &splice{a: a, port: port}
	sp.ends[0] = end{s: sp, fd: fd, other: &sp.ends[1]}
	sp.ends[1] = end{s: sp, fd: -1, other: &sp.ends[0]}
	a.splices[sp] = true
	a.rewatch(fd, 0, &sp.ends[0])
	if len(a.splices) > maxSplices {
		sp.refuse(wire.CodeLimit, 0)
		return
	}
	sp.connect()
}

func (sp *splice) connect() {
	var to syscall.Sockaddr = &syscall.SockaddrInet4{Port: int(sp.port), Addr: [4]byte{127, 0, 0, 1}}
	family := syscall.AF_INET
	if sp.v6 {
		to = &syscall.SockaddrInet6{Port: int(sp.port), Addr: [16]byte{15: 1}}
		family = syscall.AF_INET6
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		sp.connected(err)
		return
	}
	sp.ends[1].fd = fd
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	err = syscall.Connect(fd, to)
	if err == syscall.EINPROGRESS {
		sp.ends[1].watched = unix.EPOLLOUT
		err = sp.a.add(fd, unix.EPOLLOUT, &sp.ends[1])
		if err == nil {
			return
		}
	} else if err == nil {
		err = sp.a.add(fd, 0, &sp.ends[1])
	}
	sp.connected(err)
}

// connected tells the host how the connecting went; where nothing listens on
// the IPv4 address, the IPv6 one is tried.
func (sp *splice) connected(err error) {
	if err == nil {
		sp.ready = true
		sendHello(sp.ends[0].fd, wire.CodeOK, 0)
		sp.move()
		return
	}
	if e := &sp.ends[1]; e.fd >= 0 {
		sp.a.close(e.fd)
		e.fd, e.watched = -1, 0
	}
	if !sp.v6 {
		sp.v6 = true
		sp.connect()
		return
	}
	errno, ok := err.(syscall.Errno)
	if !ok || errno == syscall.EAFNOSUPPORT || errno == syscall.EADDRNOTAVAIL || errno == syscall.ENETUNREACH {
		errno = syscall.ECONNREFUSED // there is no IPv6; IPv4 was refused
	}
	sp.refuse(wire.CodeErrno, errno)
}

func (sp *splice) refuse(code wire.Code, errno syscall.Errno) {
	sendHello(sp.ends[0].fd, code, errno)
	sp.close()
}

func (sp *splice) close() {
	if sp.over {
		return
	}
	sp.over = true
	for i := range sp.ends {
		if fd := sp.ends[i].fd; fd >= 0 {
			sp.a.close(fd)
		}
		sp.ends[i].buf = nil
	}
	delete(sp.a.splices, sp)
}

func (e *end) event(ev uint32) {
	sp := e.s
	if sp.over {
		return
	}
	if sp.ready {
		if ev&unix.EPOLLERR != 0 {
			sp.close()
			return
		}
		sp.move()
		return
	}
	if e == &sp.ends[0] { // the host's end is gone before the connection stood
		sp.close()
		return
	}
	errno, err := syscall.GetsockoptInt(e.fd, syscall.SOL_SOCKET, syscall.SO_ERROR)
	if err == nil && errno != 0 {
		err = syscall.Errno(errno)
	}
	sp.connected(err)
}

// move passes bytes both ways, as far as the sockets take them.
func (sp *splice) move() {
	for i := range sp.ends {
		if !sp.ends[i].take() {
			sp.close()
			return
		}
	}
	if sp.ends[0].shut && sp.ends[1].shut {
		sp.close()
		return
	}
	for i := range sp.ends {
		sp.ends[i].watch()
	}
}

// take writes what the other end has; false: the connection is broken.
func (e *end) take() bool {
	if e.shut {
		return true
	}
	if len(e.buf) > 0 {
		n := send(e.fd, e.buf)
		if n < 0 {
			return false
		}
		if e.buf = e.buf[n:]; len(e.buf) > 0 {
			return true
		}
		e.buf = nil
	}
	if !e.other.eof && !e.pull() {
		return false
	}
	if e.other.eof && len(e.buf) == 0 {
		e.shut = true
		return syscall.Shutdown(e.fd, syscall.SHUT_WR) == nil
	}
	return true
}

// pull reads once from the other end and sends it on; the rest stays in buf.
func (e *end) pull() bool {
	b := e.s.a.scratch
	n, err := syscall.Read(e.other.fd, b)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
		return true
	case err != nil:
		return false
	case n == 0:
		e.other.eof = true
		return true
	}
	sent := send(e.fd, b[:n])
	if sent < 0 {
		return false
	}
	if sent < n {
		e.buf = append([]byte(nil), b[sent:n]...)
	}
	return true
}

// watch waits for what can go on: reading while the other end has taken all,
// writing while this one has not.
func (e *end) watch() {
	var want uint32
	if !e.eof && len(e.other.buf) == 0 {
		want |= unix.EPOLLIN
	}
	if len(e.buf) > 0 {
		want |= unix.EPOLLOUT
	}
	if want != e.watched {
		e.watched = want
		e.s.a.mod(e.fd, want)
	}
}
