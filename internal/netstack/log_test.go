package netstack

import (
	"io"
	"net"
	"slices"
	"testing"

	"github.com/miekg/dns"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

// decisions are the records of s that are no ends.
func decisions(s *Stack) []egress.Decision {
	return slices.DeleteFunc(s.Log().Since(0).Records, func(d egress.Decision) bool { return d.Of != 0 })
}

// ends are the records of s that are.
func ends(s *Stack) []egress.Decision {
	return slices.DeleteFunc(s.Log().Since(0).Records, func(d egress.Decision) bool { return d.Of == 0 })
}

func TestLogTellsBytes(t *testing.T) {
	o := newOutside()
	o.record(t, "good.test. 60 IN A 93.0.0.1")
	o.route("93.0.0.1:9999", serve(t, func(c *net.TCPConn) {
		io.CopyN(io.Discard, c, 7)
		c.Write(make([]byte, 100_000))
	}))
	s, g := newPair(t, o, policy(t, `{"allow":["good.test"]}`))
	g.lookup("udp", "good.test", dns.TypeA)
	g.lookup("udp", "bad.test", dns.TypeTXT)
	c := g.mustDial("93.0.0.1:9999")
	if _, err := c.Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, c); n != 100_000 || err != nil {
		t.Fatalf("read %d bytes: %v", n, err)
	}
	c.Close()
	await(t, "the record of the end", func() bool { return len(ends(s)) == 1 })
	d, end := decisions(s), ends(s)[0]
	if len(d) != 3 || d[1].Name != "bad.test" || d[1].Query != "TXT" || d[1].Allowed {
		t.Fatalf("decisions: %+v", d)
	}
	if end.Of != d[2].Seq || end.Name != "good.test" || end.In != 100_000 || end.Out != 7 || end.Reason != "" {
		t.Errorf("end: %+v", end)
	}
	in, out := s.Usage()
	var sumIn, sumOut uint64
	for _, x := range s.Log().Summary().Sums {
		sumIn, sumOut = sumIn+x.In, sumOut+x.Out
		if x.Name == "good.test" && (x.Lookups != 1 || !x.Answered || x.Connections != 1) {
			t.Errorf("sum: %+v", x)
		}
	}
	if in != sumIn || out != sumOut {
		t.Errorf("the stack counts %d in and %d out, the sums %d and %d", in, out, sumIn, sumOut)
	}
}

func TestLogTellsWhyFlowsEnd(t *testing.T) {
	o := newOutside()
	o.route("93.0.0.1:80", serve(t, echo))
	o.route("93.0.0.3:80", "no route")
	s, g := newPair(t, o, egress.AllowAll())
	if _, err := g.dial("93.0.0.3:80"); err == nil {
		t.Fatal("connected without a route")
	}
	roundTrip(t, g.mustDial("93.0.0.1:80"))
	s.SetPolicy(egress.DenyAll())
	await(t, "the connection's end", func() bool { return len(ends(s)) == 2 })
	s.SetPolicy(egress.AllowAll())
	roundTrip(t, g.mustDial("93.0.0.1:80"))
	s.Close()
	if !s.Log().Since(0).Closed {
		t.Error("the log of a closed stack is open")
	}
	var why []string
	for _, e := range ends(s) {
		why = append(why, e.Reason)
	}
	if want := []string{"dial: no route to host", "cut by a new network policy", "the sandbox stopped"}; !slices.Equal(why, want) {
		t.Errorf("reasons %q, want %q", why, want)
	}
}
