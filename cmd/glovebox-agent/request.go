package main

import (
	"syscall"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

var (
	badRequest   = &wire.Failure{Code: wire.CodeBadRequest, Text: "malformed request"}
	notAssembled = &wire.Failure{Code: wire.CodeNotAssembled}
	noCommand    = &wire.Failure{Code: wire.CodeNoCommand}
	finished     = &wire.Failure{Code: wire.CodeFinished}
)

func errnoFailure(op string, err error) *wire.Failure {
	if e, ok := err.(*opError); ok {
		op, err = op+": "+e.op, e.err
	}
	e, ok := err.(syscall.Errno)
	if !ok {
		e = syscall.EIO
	}
	return &wire.Failure{Code: wire.CodeErrno, Errno: uint16(e), Text: op}
}

// request starts a request; p is valid during the call.
func (s *session) request(h wire.Header, p []byte) {
	switch h.Kind {
	case wire.KindPing:
		s.reply(h.Stream, wire.KindOK, p)
	case wire.KindTakeover:
		s.a.takeover(s)
		s.ok(h.Stream)
	case wire.KindWarmup:
		s.answer(h.Stream, s.a.warmup())
	case wire.KindAssemble:
		s.answer(h.Stream, s.a.assembleRequest(p))
	case wire.KindStart:
		s.startRequest(h.Stream, p)
	case wire.KindAttach:
		s.attach(h.Stream, p)
	case wire.KindSignal:
		s.signal(h.Stream, p)
	case wire.KindStdin:
		s.stdin(h.Stream, p)
	case wire.KindCloseStdin, wire.KindForget:
		s.byID(h, p)
	case wire.KindResize:
		s.resize(h.Stream, p)
	case wire.KindStat:
		s.stat(h.Stream, p)
	case wire.KindMkdir:
		s.mkdir(h.Stream, p)
	case wire.KindRead:
		s.readFile(h.Stream, p)
	case wire.KindTx:
		s.openTx(h.Stream, p)
	default:
		s.fail(h.Stream, badRequest)
	}
}

// takeover ends all that earlier hosts left: a host that took this sandbox
// over must not share it with one that is taken for dead.
func (a *agent) takeover(by *session) {
	for s := range a.sessions {
		if s != by {
			s.close()
		}
	}
	for sp := range a.splices {
		sp.close()
	}
}

func (s *session) startRequest(id uint32, p []byte) {
	var m wire.Start
	if m.Decode(p) != nil {
		s.fail(id, badRequest)
		return
	}
	if !s.a.assembled {
		s.fail(id, notAssembled)
		return
	}
	known := s.a.commands[m.ID] != nil
	if f := s.a.start(&m); f != nil {
		s.fail(id, f)
		return
	}
	if known || m.Follow == 0 || s.streams[m.Follow] != nil {
		s.ok(id)
		return
	}
	s.reply(id, wire.KindOK, []byte{1})
	s.follow(m.Follow, s.a.commands[m.ID], 0)
}

func (s *session) byID(h wire.Header, p []byte) {
	var m wire.ID
	if m.Decode(p) != nil {
		s.fail(h.Stream, badRequest)
		return
	}
	c := s.a.commands[m.ID]
	switch {
	case c == nil:
		s.fail(h.Stream, noCommand)
	case h.Kind == wire.KindCloseStdin:
		s.answer(h.Stream, c.closeStdin())
	case !c.done:
		s.fail(h.Stream, &wire.Failure{Code: wire.CodeBadRequest, Text: "the command runs"})
	default:
		s.a.forgetCommand(c)
		s.ok(h.Stream)
	}
}

func (s *session) resize(id uint32, p []byte) {
	var m wire.Resize
	if m.Decode(p) != nil {
		s.fail(id, badRequest)
		return
	}
	c := s.a.commands[m.ID]
	if c == nil {
		s.fail(id, noCommand)
		return
	}
	s.answer(id, c.resize(m.Rows, m.Cols))
}

// warmup runs this binary once. It needs no root, so it also serves a driver
// that waits for a clone in the guest.
func (a *agent) warmup() *wire.Failure {
	lists, err := cstrings([]string{"glovebox-agent"}, nil)
	if err != nil {
		return errnoFailure("warm up", err)
	}
	path := append([]byte("/proc/self/exe"), 0)
	childSteps = append(childSteps[:0],
		step{nr: syscall.SYS_RT_SIGPROCMASK, a1: sigSetmask, a2: addr(&noSignals), a4: 8},
		step{nr: syscall.SYS_EXECVE, a1: addr(&path[0]), a2: addr(&lists[0][0]), a3: addr(&lists[1][0])})
	pid, pidfd, err := spawn(path, lists)
	if err != nil {
		return errnoFailure("warm up", err)
	}
	_ = syscall.Close(pidfd)
	a.warming[pid] = true
	return nil
}
