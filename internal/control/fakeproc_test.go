package control

import (
	"io"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// fakeProc is a command in a fakeMachine; its fields are what it was started
// with.
type fakeProc struct {
	guest.Command
	m     *fakeMachine
	in    *io.PipeReader
	stdin *io.PipeWriter

	mu      sync.Mutex
	log     []byte
	over    bool
	frozen  bool
	sig     int
	tree    bool
	killed  chan struct{}
	changed chan struct{}
}

type fakeStream struct {
	p    *fakeProc
	kind wire.RecordKind
}

func (p *fakeProc) stdout() io.Writer { return fakeStream{p, wire.RecordStdout} }
func (p *fakeProc) stderr() io.Writer { return fakeStream{p, wire.RecordStderr} }

func (s fakeStream) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		piece := b[:min(len(b), wire.MaxRecord)]
		b = b[len(piece):]
		h := make([]byte, wire.RecordHeaderSize)
		wire.PutRecordHeader(h, s.kind, len(piece))
		s.p.append(append(h, piece...), false)
	}
	return n, nil
}

func (p *fakeProc) append(b []byte, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen || p.over {
		return
	}
	p.log = append(p.log, b...)
	p.over = over
	close(p.changed)
	p.changed = make(chan struct{})
}

// freeze: the machine is gone, and nothing is written any more.
func (p *fakeProc) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = true
}

func (p *fakeProc) exit(code int) {
	p.mu.Lock()
	if p.sig != 0 {
		code = 128 + p.sig
	}
	p.mu.Unlock()
	p.in.Close()
	p.append(wire.AppendExit(nil, int32(code), 0), true)
}

func (p *fakeProc) signal(sig int) { p.signalTree(sig, true) }

func (p *fakeProc) signalTree(sig int, tree bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return guest.ErrFinished
	}
	if p.sig == 0 && sig != sigCont {
		p.sig, p.tree = sig, tree
		close(p.killed)
		p.in.CloseWithError(io.ErrClosedPipe)
	}
	return nil
}
