package main

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

const (
	inSize = 32 << 10 // grows once to hold a frame of the largest size
	// outHigh stops streams from adding output; outStop stops the reading of
	// requests, since a host that does not read answers gets no new ones.
	outHigh = 192 << 10
	outStop = 1 << 20
	// turnBytes is what a session sends before others have their turn.
	turnBytes = 1 << 20
	// maxStreams bounds the open requests of a session.
	maxStreams = 4096
)

// session is a connection that carries frames.
type session struct {
	a       *agent
	fd      int
	in      []byte
	have    int
	out     []byte
	sent    int // of out
	watched uint32
	streams map[uint32]stream
	reads   int      // files being read
	txs     int      // open transactions
	fillers []filler // streams that may have output, in order of their turn
	parts   map[uint32][]byte
	dirty   bool
	closed  bool
}

// stream is an open request that gets further frames.
type stream interface {
	// frame takes a frame; p is valid during the call. False: the host broke
	// the protocol.
	frame(k wire.Kind, p []byte) bool
	// stop ends the request: it was cancelled, or the session is closing.
	stop()
}

// filler is a stream that makes output when there is room for it.
type filler interface {
	// fill appends at most about a frame to the session's output and tells
	// whether it did.
	fill() bool
}

func (a *agent) newSession(fd int) {
	s := &session{a: a, fd: fd, in: make([]byte, inSize), watched: unix.EPOLLIN,
		streams: map[uint32]stream{}, parts: map[uint32][]byte{}}
	a.sessions[s] = true
	a.rewatch(fd, s.watched, s)
}

func (s *session) close() {
	if s.closed {
		return
	}
	s.closed = true
	s.a.close(s.fd)
	delete(s.a.sessions, s)
	for _, st := range s.streams {
		st.stop()
	}
	s.streams, s.fillers, s.parts, s.in, s.out = nil, nil, nil, nil, nil
}

func (s *session) event(ev uint32) {
	if ev&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		s.read()
	}
	if !s.closed {
		s.wake()
	}
}

// wake has the session flushed at the end of this turn.
func (s *session) wake() {
	if !s.dirty && !s.closed {
		s.dirty = true
		s.a.touch(s)
	}
}

func (s *session) read() {
	n, err := syscall.Read(s.fd, s.in[s.have:])
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return
	}
	if n <= 0 {
		s.close()
		return
	}
	s.have += n
	b := s.in[:s.have]
	for len(b) >= wire.HeaderSize {
		h, err := wire.ParseHeader(b)
		if err != nil {
			s.close()
			return
		}
		size := wire.HeaderSize + h.Len
		if len(b) < size {
			if size > len(s.in) {
				s.in = make([]byte, wire.HeaderSize+wire.MaxPayload)
			}
			break
		}
		if !s.frame(h, b[wire.HeaderSize:size]) {
			s.close()
			return
		}
		if s.closed {
			return
		}
		b = b[size:]
	}
	s.have = copy(s.in, b)
}

// frame handles one frame; false ends the session.
func (s *session) frame(h wire.Header, p []byte) bool {
	if st := s.streams[h.Stream]; st != nil {
		if h.Kind == wire.KindCancel {
			s.drop(h.Stream)
			st.stop()
			return true
		}
		return st.frame(h.Kind, p)
	}
	switch h.Kind {
	case wire.KindCancel, wire.KindAck, wire.KindCredit, wire.KindEntry, wire.KindBody, wire.KindCommit:
		delete(s.parts, h.Stream)
		return true // the request that it belonged to has just ended
	case wire.KindMore:
		part := append(s.parts[h.Stream], p...)
		if len(part) > wire.MaxRequest || len(s.parts) >= 16 && s.parts[h.Stream] == nil {
			return false
		}
		s.parts[h.Stream] = part
		return true
	}
	if part := s.parts[h.Stream]; part != nil {
		delete(s.parts, h.Stream)
		p = append(part, p...)
		if len(p) > wire.MaxRequest {
			return false
		}
	}
	if len(s.streams) >= maxStreams {
		s.fail(h.Stream, &wire.Failure{Code: wire.CodeLimit, Text: "open requests of a session"})
		return true
	}
	s.request(h, p)
	return true
}

// open registers a stream; fill is nil for one that makes no output by itself.
func (s *session) open(id uint32, st stream, f filler) {
	s.streams[id] = st
	if f != nil {
		s.fillers = append(s.fillers, f)
		s.wake()
	}
}

// drop removes a stream without stopping it.
func (s *session) drop(id uint32) {
	st := s.streams[id]
	if st == nil {
		return
	}
	delete(s.streams, id)
	for i, f := range s.fillers {
		if any(f) == any(st) {
			s.fillers = append(s.fillers[:i], s.fillers[i+1:]...)
			return
		}
	}
}

func (s *session) reply(id uint32, k wire.Kind, payload []byte) {
	if s.closed {
		return
	}
	s.out = wire.AppendFrame(s.out, id, k, payload)
	s.wake()
}

func (s *session) ok(id uint32) { s.reply(id, wire.KindOK, nil) }

func (s *session) fail(id uint32, f *wire.Failure) {
	s.reply(id, wire.KindErr, f.Append(nil))
}

// answer is ok or fail.
func (s *session) answer(id uint32, f *wire.Failure) {
	if f != nil {
		s.fail(id, f)
		return
	}
	s.ok(id)
}

// flush sends what there is and lets the streams add more while the socket
// takes it.
func (s *session) flush() {
	s.dirty = false
	if s.closed {
		return
	}
	for total := 0; ; {
		s.fill()
		if s.sent == len(s.out) {
			break
		}
		n := send(s.fd, s.out[s.sent:])
		if n < 0 {
			s.close()
			return
		}
		if s.sent += n; s.sent < len(s.out) {
			break // the socket is full
		}
		s.out, s.sent = s.out[:0], 0
		if total += n; total > turnBytes {
			s.wake()
			break
		}
	}
	s.watch()
}

// fill asks the streams in turn, one frame each, until there is enough.
func (s *session) fill() {
	idle := 0
	for len(s.out)-s.sent < outHigh && idle < len(s.fillers) {
		f := s.fillers[0]
		copy(s.fillers, s.fillers[1:])
		s.fillers[len(s.fillers)-1] = f
		if f.fill() {
			idle = 0
		} else {
			idle++
		}
		if s.closed {
			return
		}
	}
}

// watch sets the events that the session waits for.
func (s *session) watch() {
	left := len(s.out) - s.sent
	var want uint32
	if left < outStop {
		want |= unix.EPOLLIN
	}
	if left > 0 {
		want |= unix.EPOLLOUT
	} else if cap(s.out) > 2*outHigh {
		s.out, s.sent = nil, 0
	}
	if want != s.watched {
		s.watched = want
		s.a.mod(s.fd, want)
	}
}
