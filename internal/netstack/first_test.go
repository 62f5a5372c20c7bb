package netstack

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

func TestListen(t *testing.T) {
	for in, want := range map[string]speechKind{
		"":                                    speechUnknown,
		"G":                                   speechUnknown,
		"GET /":                               speechUnknown,
		"GET / HTTP/1.1\r":                    speechUnknown,
		"GET / HTTP/1.1\r\n":                  speechHTTP,
		"\r\n\r\nGET / HTTP/1.1\r\n":          speechHTTP,
		"get\t/\tHTTP/1.1\n":                  speechHTTP,
		"GET /\n":                             speechHTTP,
		"GET http://a/ HTTP/1.0\n":            speechHTTP,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":    speechHTTP,
		"X-ODD!#$ / HTTP/9.9\r\n":             speechHTTP,
		"SSH-2.0-OpenSSH_9.6 Ubuntu\r\n":      speechOther,
		"SSH-2.0-OpenSSH_9.6\r\n":             speechOther,
		"EHLO there\r\n":                      speechOther,
		"PING\r\n":                            speechOther,
		"PING\r\nGET / HTTP/1.1\r\n":          speechOther,
		"*1\r\n$4\r\n":                        speechOther,
		"\x00\x00\x00\x08\x04\xd2\x16\x2f":    speechOther,
		"AMQP\x00\x00\x09\x01":                speechOther,
		"(GET / HTTP/1.1\r\n":                 speechOther,
		string(bytes.Repeat([]byte("A"), 40)): speechOther,
	} {
		if got := listen([]byte(in), 9999); got.kind != want {
			t.Errorf("%q: %v, want %v", in, got.kind, want)
		}
		if got := listen([]byte(in), 80); in != "" && got.kind != speechHTTP {
			t.Errorf("%q to port 80: %v", in, got.kind)
		}
	}
	for _, step := range []int{1, 7, 1 << 20} {
		for name, want := range map[string]speech{"good.test": {speechTLS, "good.test"}, "": {kind: speechTLS}} {
			for n, h := step, hello(t, name); ; n += step {
				got := listen(h[:min(n, len(h))], 80)
				if n >= len(h) {
					if got != want {
						t.Errorf("%q: %v", name, got)
					}
					break
				}
				if got.kind != speechUnknown {
					t.Fatalf("%q after %d bytes: %v", name, n, got)
				}
			}
		}
	}
	if got := listen(bytes.Repeat([]byte{22, 3, 1, 0, 1, 1}, maxHello), 443); got != (speech{kind: speechTLS}) {
		t.Errorf("a ClientHello without end: %v", got)
	}
}

func FuzzListen(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n"), []byte("\r\n"), uint16(80))
	f.Add([]byte("\r\nSSH-2.0"), []byte(" x\n"), uint16(22))
	f.Fuzz(func(t *testing.T, a, b []byte, port uint16) {
		first := listen(a, port)
		whole := listen(slices.Concat(a, b), port)
		if first.kind != speechUnknown && first.kind != whole.kind {
			t.Errorf("%q is %v, with %q more it is %v", a, first, b, whole)
		}
		if len(a) >= maxHello && first.kind == speechUnknown {
			t.Errorf("%d bytes are not enough", len(a))
		}
	})
}

func TestGate(t *testing.T) {
	refusal := errors.New("refused")
	newGate := func() (*gate, *bytes.Buffer) {
		var out bytes.Buffer
		return &gate{out: &out, port: 9999, decide: func(s speech) error {
			if s.kind == speechHTTP || s.kind == speechTLS && s.server != "good.test" {
				return refusal
			}
			return nil
		}}, &out
	}
	run := func(in []byte, step int) (string, error) {
		g, out := newGate()
		for len(in) > 0 {
			n := min(step, len(in))
			if _, err := g.Write(in[:n]); err != nil {
				return out.String(), err
			}
			in = in[n:]
		}
		return out.String(), g.giveUp()
	}
	for _, step := range []int{1, 7, 1 << 20} {
		for _, good := range [][]byte{append(hello(t, "good.test"), "data"...), []byte("EHLO x\r\nGET / HTTP/1.1\r\n"), {0, 1}} {
			if out, err := run(good, step); err != nil || out != string(good) {
				t.Errorf("step %d: %q: %d bytes, %v", step, good[:2], len(out), err)
			}
		}
		for _, bad := range [][]byte{hello(t, "evil.test"), hello(t, ""), []byte("GET / HTTP/1.1\r\n\r\n")} {
			if out, err := run(bad, step); !errors.Is(err, refusal) || out != "" {
				t.Errorf("step %d: %d bytes passed, %v", step, len(out), err)
			}
		}
	}
	g, out := newGate()
	for _, s := range []string{"PI", "NG"} {
		if _, err := g.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	if !g.waiting() || out.Len() > 0 {
		t.Errorf("half a line passed: %q", out)
	}
	if err := g.giveUp(); err != nil || out.String() != "PING" || g.waiting() {
		t.Errorf("%q, %v", out, err)
	}
	g, _ = newGate()
	_, _ = g.Write([]byte("GE"))
	_ = g.giveUp()
	if _, err := g.Write([]byte("T / HTTP/1.1\r\n")); !errors.Is(err, errPieces) {
		t.Errorf("a request in pieces: %v", err)
	}
}
