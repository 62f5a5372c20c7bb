package main

import "github.com/glovebox-dev/glovebox/internal/guest/wire"

// attachment sends a command's log to a session.
type attachment struct {
	s     *session
	id    uint32
	c     *command
	pos   int64 // sent so far
	ended bool  // End is sent; the last Ack may still come
}

// attachPiece bounds the bytes of the log in a frame.
const attachPiece = 128 << 10

func (s *session) attach(id uint32, p []byte) {
	var m wire.Attach
	if m.Decode(p) != nil {
		s.fail(id, badRequest)
		return
	}
	c := s.a.commands[m.ID]
	if c == nil {
		s.fail(id, noCommand)
		return
	}
	if !c.ring.ack(m.Cursor) {
		s.fail(id, &wire.Failure{Code: wire.CodeCursor, Text: "the log's bytes from the cursor on are not here"})
		return
	}
	if c.att != nil {
		c.att.end(&wire.Failure{Code: wire.CodeSuperseded})
	}
	s.follow(id, c, m.Cursor)
	c.acked()
}

// follow opens the newest attachment of a command.
func (s *session) follow(id uint32, c *command, pos int64) {
	at := &attachment{s: s, id: id, c: c, pos: pos}
	c.att = at
	c.a.disarm(&c.lonely)
	s.open(id, at, at)
}

// end stops the attachment with a failure.
func (t *attachment) end(f *wire.Failure) {
	t.s.drop(t.id)
	if !t.ended {
		t.s.fail(t.id, f)
	}
	t.stop()
}

func (t *attachment) stop() {
	if t.c.att == t {
		t.c.att = nil
		t.c.alone()
	}
}

func (t *attachment) frame(k wire.Kind, p []byte) bool {
	var m wire.Offset
	if k != wire.KindAck || m.Decode(p) != nil || m.N > t.pos || !t.c.ring.ack(m.N) {
		return false
	}
	if t.ended && m.N == t.c.ring.head {
		t.s.drop(t.id)
		t.stop()
	}
	t.c.acked()
	return true
}

// fill sends the next piece of the log. No window is needed: what the host
// has not acknowledged is at most what the ring holds.
func (t *attachment) fill() bool {
	if t.ended {
		return false
	}
	r, s := &t.c.ring, t.s
	n := min(int(r.head-t.pos), attachPiece)
	if n == 0 {
		if !t.c.done {
			return false
		}
		t.ended = true
		s.out = wire.AppendFrame(s.out, t.id, wire.KindEnd, nil)
		return true
	}
	s.out = wire.AppendHeader(s.out, wire.Header{Stream: t.id, Kind: wire.KindData, Len: 8 + n})
	s.out = wire.AppendU64(s.out, uint64(t.pos))
	a, b := r.slices(t.pos, n)
	s.out = append(append(s.out, a...), b...)
	t.pos += int64(n)
	return true
}
