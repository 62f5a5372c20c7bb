// Package wire is what the agent and its host say to each other: frames, the
// messages in them, and the records of a command's log.
//
// Both sides import it, so it stays free of reflection and of packages that
// make the agent start slowly. A connection begins with a Preface; a session
// then carries frames both ways:
//
//	[stream u32][kind u8][len u32][payload]
//
// All numbers are big endian. The host chooses the stream of each request and
// does not use it again while that request is open.
package wire

import "errors"

const (
	// HeaderSize is the length of a frame's header in bytes.
	HeaderSize = 9
	// MaxPayload bounds a frame's payload in bytes, both ways.
	MaxPayload = 256 << 10
	// MaxRequest bounds a request that is cut into More frames, in bytes: an
	// Assembly carries all that layers cannot hold.
	MaxRequest = 40 << 20
	// Window is how many bytes of a stream may be on the way unacknowledged:
	// of a command's log (it is the size of its ring), of a file that is
	// read, of a transaction's data.
	Window = 1 << 20
	// MaxStdin bounds the bytes of one Stdin request.
	MaxStdin = 64 << 10
	// AgentPort is the TCP port on GuestIP at which the agent listens, for
	// connections from GatewayIP.
	AgentPort = 61000
	// MaxID bounds the length of a command's ID in bytes.
	MaxID = 128
)

// The two ends of every cable, as driver.GuestAddr and driver.GatewayAddr.
var (
	GuestIP   = [4]byte{10, 88, 0, 2}
	GatewayIP = [4]byte{10, 88, 0, 1}
)

// ErrMalformed: bytes that are no message of this protocol.
var ErrMalformed = errors.New("malformed message")

// Kind says what a frame is.
type Kind uint8

// Requests, from the host. Each is answered by OK or Err on its stream,
// except where its comment says otherwise.
const (
	KindPing       Kind = 1 + iota // echoes its payload
	KindTakeover                   // ends every other session
	KindWarmup                     // runs the agent's own binary once, which ends at once
	KindAssemble                   // Assembly
	KindStart                      // Start; OK carries 1 where Follow is followed
	KindAttach                     // Attach; answered by Data…, then End or Err
	KindAck                        // on an attach stream: Offset stored so far; not answered
	KindSignal                     // Signal
	KindStdin                      // Stdin; answered when the process's pipe has taken all
	KindCloseStdin                 // ID
	KindResize                     // Resize
	KindForget                     // ID
	KindStat                       // Path; OK carries Stat
	KindMkdir                      // Mkdir
	KindRead                       // Path; answered by OK with Stat, Data…, then End or Err
	KindTx                         // Tx opens a transaction; OK is sent for KindCommit only
	KindEntry                      // on a transaction's stream: Entry; not answered
	KindBody                       // on a transaction's stream: bytes of the last Entry; answered by Credit
	KindCommit                     // on a transaction's stream: OK once all is under its final names
	KindCancel                     // ends the stream's request; not answered
	KindCredit                     // Offset: that many more bytes may be sent; both ways; not answered
	KindMore                       // a piece of the request whose last frame has its own kind; not answered
)

// Answers, from the agent.
const (
	KindOK   Kind = 64 + iota // done; payload by request
	KindErr                   // Failure
	KindData                  // attach: offset u64, bytes; read: bytes
	KindEnd                   // the stream's data is complete
)

// Header is a frame's header.
type Header struct {
	Stream uint32
	Kind   Kind
	Len    int
}

// ParseHeader reads a header; b holds at least HeaderSize bytes. It fails
// where the length is beyond MaxPayload.
func ParseHeader(b []byte) (Header, error) {
	h := Header{Stream: U32(b), Kind: Kind(b[4]), Len: int(U32(b[5:]))}
	if U32(b[5:]) > MaxPayload {
		return h, ErrMalformed
	}
	return h, nil
}

// PutHeader writes a header into b, which holds at least HeaderSize bytes.
func PutHeader(b []byte, h Header) {
	PutU32(b, h.Stream)
	b[4] = byte(h.Kind)
	PutU32(b[5:], uint32(h.Len))
}

// AppendFrame appends a whole frame.
func AppendFrame(b []byte, stream uint32, k Kind, payload []byte) []byte {
	b = AppendHeader(b, Header{stream, k, len(payload)})
	return append(b, payload...)
}

// AppendHeader appends a header.
func AppendHeader(b []byte, h Header) []byte {
	b = AppendU32(b, h.Stream)
	b = append(b, byte(h.Kind))
	return AppendU32(b, uint32(h.Len))
}

// Mode says what a connection is for.
type Mode uint8

const (
	// ModeSession: frames follow.
	ModeSession Mode = 1
	// ModeDial: after the agent's answer the connection is one to a TCP port
	// on the guest's loopback address.
	ModeDial Mode = 2
)

const (
	// PrefaceSize is the length of the encoded Preface.
	PrefaceSize = 4 + 1 + 32 + 2
	// HelloSize is the length of the agent's answer to it: a Code and an errno u16.
	HelloSize = 3
	magic     = 0x47425801 // "GBX", version 1
)

// Preface opens every connection.
type Preface struct {
	Mode   Mode
	Secret [32]byte
	Port   uint16 // ModeDial
}

// Append appends the encoded preface.
func (p *Preface) Append(b []byte) []byte {
	b = AppendU32(b, magic)
	b = append(b, byte(p.Mode))
	b = append(b, p.Secret[:]...)
	return append(b, byte(p.Port>>8), byte(p.Port))
}

// Decode reads a preface of PrefaceSize bytes.
func (p *Preface) Decode(b []byte) error {
	if len(b) != PrefaceSize || U32(b) != magic {
		return ErrMalformed
	}
	p.Mode = Mode(b[4])
	copy(p.Secret[:], b[5:])
	p.Port = uint16(b[37])<<8 | uint16(b[38])
	if p.Mode != ModeSession && p.Mode != ModeDial {
		return ErrMalformed
	}
	return nil
}
