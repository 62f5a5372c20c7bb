package netstack

import (
	"bytes"
	"errors"
	"io"
)

// speech is what a connection's first bytes show it to be.
type speech struct {
	kind   speechKind
	server string // the name in a ClientHello, if any
}

type speechKind int

const (
	speechUnknown speechKind = iota // more bytes are needed
	speechTLS
	speechHTTP
	speechOther
)

// httpPort is where everything that is not TLS is taken for HTTP: servers
// there understand requests that look like none.
const httpPort = 80

// maxMethod bounds a request's method.
const maxMethod = 32

// listen tells what the first bytes of a connection to port are. It knows
// before there are maxHello of them.
func listen(b []byte, port uint16) speech {
	if len(b) == 0 {
		return speech{}
	}
	server, state := readHello(b)
	switch {
	case state == helloTLS:
		return speech{speechTLS, server}
	case state == helloPartial && len(b) < maxHello:
		return speech{}
	case state == helloPartial:
		return speech{kind: speechTLS}
	case port == httpPort:
		return speech{kind: speechHTTP}
	}
	return speech{kind: requestLine(b)}
}

// requestLine recognises a request of HTTP (or the preface of HTTP/2), also
// in the forms that only lenient servers take.
func requestLine(b []byte) speechKind {
	b = bytes.TrimLeft(b, "\r\n")
	blank := bytes.IndexAny(b, " \t\v\f")
	if blank < 0 && len(b) > maxMethod || blank > maxMethod || !isMethod(b[:max(blank, 0)]) {
		return speechOther
	}
	line, _, whole := bytes.Cut(b, []byte("\n"))
	switch {
	case whole && blank > len(line), whole && blank < 0:
		return speechOther // a line of one word
	case !whole && len(b) < maxHello/2:
		if blank < 0 && !isMethod(b) {
			return speechOther
		}
		return speechUnknown
	case whole && !bytes.Contains(line, []byte("HTTP/")) && string(b[:blank]) != "GET": // HTTP/0.9 had GET alone
		return speechOther
	}
	return speechHTTP
}

func isMethod(b []byte) bool {
	for _, c := range b {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0) {
			return false
		}
	}
	return true
}

// errTaken ends the plain copying of a connection that goes through the
// interceptor instead.
var errTaken = errors.New("connection is taken over")

// gate passes a connection's bytes on once decide has agreed to what they
// are; until then, and after an error, it holds them.
type gate struct {
	out    io.Writer
	port   uint16
	decide func(speech) error
	held   []byte
	open   bool
	// watched is the first line of a connection that was opened before the
	// line was whole: it must not become a request after all.
	watched []byte
}

// Write implements io.Writer.
func (g *gate) Write(b []byte) (int, error) {
	if g.open {
		if err := g.watch(b); err != nil {
			return 0, err
		}
		return g.out.Write(b)
	}
	g.held = append(g.held, b...)
	what := listen(g.held, g.port)
	if what.kind == speechUnknown {
		return len(b), nil
	}
	if err := g.pass(what); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (g *gate) pass(what speech) error {
	if err := g.decide(what); err != nil {
		return err
	}
	g.open = true
	held := g.held
	g.held = nil
	_, err := g.out.Write(held)
	return err
}

// waiting tells whether bytes are held that a peer may be waiting for: half
// a line may be all that another protocol says at first. Half a ClientHello
// is not.
func (g *gate) waiting() bool {
	if g.open || len(g.held) == 0 {
		return false
	}
	_, state := readHello(g.held)
	return state == helloNotTLS
}

// giveUp passes on what is held as another protocol than HTTP.
func (g *gate) giveUp() error {
	if !g.waiting() {
		return nil
	}
	line := g.held
	if err := g.pass(speech{kind: speechOther}); err != nil {
		return err
	}
	g.watched = line
	return nil
}

var errPieces = errors.New("an HTTP request came in pieces too slowly to be looked at")

func (g *gate) watch(b []byte) error {
	if g.watched == nil {
		return nil
	}
	g.watched = append(g.watched, b...)
	switch requestLine(g.watched) {
	case speechHTTP:
		return errPieces
	case speechOther:
		g.watched = nil
	}
	return nil
}
