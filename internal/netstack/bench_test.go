package netstack

import (
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

const chunk = 256 << 10

func discard(c *net.TCPConn) {
	buf := make([]byte, chunk)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

func produce(c *net.TCPConn) {
	buf := make([]byte, chunk)
	for {
		if _, err := c.Write(buf); err != nil {
			return
		}
	}
}

// benchUp and benchDown move b.N chunks over c.
func benchUp(b *testing.B, c net.Conn) {
	buf := make([]byte, chunk)
	b.SetBytes(chunk)
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
}

func benchDown(b *testing.B, c net.Conn) {
	buf := make([]byte, chunk)
	b.SetBytes(chunk)
	for b.Loop() {
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkThroughput(b *testing.B) {
	o := newOutside()
	up, down := serve(b, discard), serve(b, produce)
	o.route("93.0.0.1:80", up)
	o.route("93.0.0.2:80", down)
	_, g := newPair(b, o, egress.AllowAll())
	for _, bm := range []struct {
		name string
		dial func() (net.Conn, error)
		run  func(*testing.B, net.Conn)
	}{
		{"out/loopback", func() (net.Conn, error) { return net.Dial("tcp", up) }, benchUp},
		{"out/cable", func() (net.Conn, error) { return g.dial("93.0.0.1:80") }, benchUp},
		{"in/loopback", func() (net.Conn, error) { return net.Dial("tcp", down) }, benchDown},
		{"in/cable", func() (net.Conn, error) { return g.dial("93.0.0.2:80") }, benchDown},
	} {
		b.Run(bm.name, func(b *testing.B) {
			c, err := bm.dial()
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			bm.run(b, c)
		})
	}
}

func BenchmarkDialIn(b *testing.B) {
	s, g := newPair(b, newOutside(), egress.DenyAll())
	ln := g.listen(8000)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	b.Run("connect", func(b *testing.B) {
		for b.Loop() {
			c, err := s.DialContext(b.Context(), 8000)
			if err != nil {
				b.Fatal(err)
			}
			c.Close()
		}
	})
	b.Run("round trip", func(b *testing.B) {
		c, err := s.DialContext(b.Context(), 8000)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		for b.Loop() {
			roundTrip(b, c)
		}
	})
}

func BenchmarkConnectOut(b *testing.B) {
	o := newOutside()
	addr := serve(b, echo)
	o.route("93.0.0.1:80", addr)
	_, g := newPair(b, o, egress.AllowAll())
	for _, bm := range []struct {
		name string
		dial func() (net.Conn, error)
	}{
		{"loopback", func() (net.Conn, error) { return net.Dial("tcp", addr) }},
		{"cable", func() (net.Conn, error) { return g.dial("93.0.0.1:80") }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			for b.Loop() {
				c, err := bm.dial()
				if err != nil {
					b.Fatal(err)
				}
				roundTrip(b, c)
				c.Close()
			}
		})
	}
}

// What a request costs more where its connection is opened.
func BenchmarkRequest(b *testing.B) {
	for name, rules := range map[string]string{"passed": `[]`, "opened": `[{"transform":[{"headers":{"x":"y"}}]}]`} {
		b.Run(name, func(b *testing.B) {
			w := newWeb(b, `{"allow":{"a.test":`+rules+`}}`, nil)
			w.origin("93.0.0.1", func(rw http.ResponseWriter, r *http.Request) { _, _ = io.CopyN(rw, zeros{}, r.ContentLength) }, "a.test")
			get := func(c *http.Client, n int64) {
				r, err := http.NewRequest("POST", "https://a.test/", io.LimitReader(zeros{}, n))
				if err != nil {
					b.Fatal(err)
				}
				r.ContentLength = n
				res, err := c.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil {
					b.Fatal(err)
				}
				res.Body.Close()
			}
			b.Run("kept alive", func(b *testing.B) {
				c := w.client("93.0.0.1", true)
				for b.Loop() {
					get(c, 1000)
				}
			})
			b.Run("new connection", func(b *testing.B) {
				for b.Loop() {
					c := w.client("93.0.0.1", true)
					get(c, 1000)
					c.CloseIdleConnections()
				}
			})
			b.Run("16 MB each way", func(b *testing.B) {
				c := w.client("93.0.0.1", true)
				b.SetBytes(32 << 20)
				for b.Loop() {
					get(c, 16<<20)
				}
			})
		})
	}
}
