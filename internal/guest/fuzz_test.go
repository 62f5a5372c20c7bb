package guest_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// FuzzAgent is an agent that says anything at all: whatever that is, the calls
// end, and none of them panics.
func FuzzAgent(f *testing.F) {
	st := wire.Stat{Size: 3, Mode: 0o100644}
	fail := wire.Failure{Code: wire.CodeErrno, Errno: 2, Text: "x"}
	one := wire.Offset{N: 1}
	for _, p := range [][]byte{
		wire.AppendFrame(nil, 1, wire.KindOK, nil),
		wire.AppendFrame(wire.AppendFrame(wire.AppendFrame(nil, 1, wire.KindOK, st.Append(nil)), 1, wire.KindData, []byte("abc")), 1, wire.KindEnd, nil),
		wire.AppendFrame(nil, 1, wire.KindErr, fail.Append(nil)),
		wire.AppendFrame(wire.AppendFrame(nil, 1, wire.KindCredit, one.Append(nil)), 1, wire.KindOK, nil),
		wire.AppendFrame(wire.AppendFrame(nil, 1, wire.KindData, append(make([]byte, 8), wire.AppendExit(nil, 0, 0)...)), 1, wire.KindEnd, nil),
	} {
		for call := range uint8(6) {
			f.Add(call, p)
		}
	}
	f.Fuzz(func(t *testing.T, call uint8, says []byte) {
		here, there := net.Pipe()
		go func() {
			_, _ = io.ReadFull(there, make([]byte, wire.PrefaceSize))
			_, _ = there.Write(make([]byte, wire.HelloSize))
			go func() { _, _ = io.Copy(io.Discard, there) }()
			_, _ = there.Write(says)
			there.Close()
		}()
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		c, err := guest.Dial(ctx, func(context.Context) (net.Conn, error) { return here, nil }, secret)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		switch call % 6 {
		case 0:
			_ = c.Ping(ctx)
		case 1:
			_, _ = c.Stat(ctx, "/x")
		case 2:
			if r, _, err := c.ReadFile(ctx, "/x"); err == nil {
				_, _ = io.Copy(io.Discard, r)
				r.Close()
			}
		case 3:
			_ = c.Attach(ctx, "x", 0, newLog().sink)
		case 4:
			_ = c.WriteTar(ctx, "/", guest.User{}, bytes.NewReader(nil), nil)
		case 5:
			_ = c.StartCommand(ctx, guest.Command{ID: "x", Argv: []string{"x"}, Dir: "/"})
		}
		if ctx.Err() != nil {
			t.Error("the call hung")
		}
	})
}
