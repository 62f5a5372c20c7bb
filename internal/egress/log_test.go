package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestLog(t *testing.T) {
	j, _ := newTestJudge(mustParse(t, `{"allow":["good.com"]}`))
	j.Resolve("Bad.com.", "A")
	j.Connect(TCP, ap("8.8.8.8"))
	p := j.Log().Since(0)
	if d := p.Records; len(d) != 2 || p.Dropped != 0 || p.Last != 2 || d[0].Name != "bad.com" || d[0].Query != "A" || d[0].Allowed || d[0].Reason == "" || d[1].Addr != ap("8.8.8.8") || d[1].Seq != 2 {
		t.Errorf("%+v", p)
	}
	if p := j.Log().Since(1); len(p.Records) != 1 || p.Records[0].Seq != 2 {
		t.Errorf("since 1: %+v", p)
	}
	if p := j.Log().Since(2); len(p.Records) != 0 || p.Dropped != 0 || p.Last != 2 {
		t.Errorf("since the last: %+v", p)
	}
	if p := j.Log().Since(99); len(p.Records) != 2 || p.Dropped != 0 || j.Log().Wait(t.Context(), 99) != nil {
		t.Errorf("since one of an earlier log: %+v", p)
	}
	for i := range logSize + 10 {
		j.Resolve(fmt.Sprintf("n%d.com", i), "A")
	}
	p = j.Log().Since(0)
	if d := p.Records; len(d) != logSize || p.Dropped != 12 || d[0].Name != "n10.com" || d[logSize-1].Name != fmt.Sprintf("n%d.com", logSize+9) {
		t.Errorf("%d kept, %d dropped, first %s", len(d), p.Dropped, d[0].Name)
	}
	if p := j.Log().Since(5); p.Dropped != 7 {
		t.Errorf("dropped after 5: %d", p.Dropped)
	}
}

// TestLogFollowers: each follower sees every record once, in order, or is told
// how many it has missed.
func TestLogFollowers(t *testing.T) {
	const total = 5 * logSize
	l := NewLog()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var seen, dropped, at uint64
			for {
				if err := l.Wait(t.Context(), at); err != nil {
					t.Error(err)
					return
				}
				p := l.Since(at)
				dropped += p.Dropped
				for _, d := range p.Records {
					if seen++; d.Seq != seen+dropped {
						t.Errorf("record %d after %d seen and %d dropped", d.Seq, seen-1, dropped)
						return
					}
				}
				if at = p.Last; p.Closed {
					break
				}
			}
			if seen+dropped != total {
				t.Errorf("%d seen, %d dropped of %d", seen, dropped, total)
			}
		})
	}
	for range total {
		l.add(Decision{Proto: TCP})
	}
	l.Close()
	l.Close()
	wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := NewLog().Wait(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestLogIsBounded: names are the guest's own words, and so is how many of
// them an address has.
func TestLogIsBounded(t *testing.T) {
	j, _ := newTestJudge(AllowAll())
	for i := range maxNames {
		j.Answer(fmt.Sprintf("n%d.%s", i, strings.Repeat("x", 200)), netip.MustParseAddr("8.8.8.8"), time.Hour)
	}
	j.Connect(TCP, ap("8.8.8.8"))
	j.SetPolicy(mustParse(t, `{"allow":["other.com"]}`))
	j.Connect(TCP, ap("8.8.8.8"))
	j.ServerName(Verdict{Names: []string{"a"}}, ap("8.8.8.8"), "\x1b[2J\xff\u202e"+strings.Repeat("é", 5000))
	for _, d := range j.Log().Since(0).Records {
		size := len(d.Name) + len(d.Reason) + len(strings.Join(d.Aliases, ""))
		if size > 2*maxText+maxAliases*maxText || !utf8.ValidString(d.Name) || strings.ContainsAny(d.Name+d.Reason, "\x1b\u202e") {
			t.Errorf("record of %d bytes: %q %q", size, d.Name, d.Reason)
		}
	}
}

func TestMeter(t *testing.T) {
	j, now := newTestJudge(mustParse(t, `{"allow":["a.com","b.com"],"subnets":{"allow":["9.9.9.9/32"]}}`))
	j.Answer("a.com", netip.MustParseAddr("8.8.8.8"), time.Hour)
	j.Answer("b.com", netip.MustParseAddr("8.8.8.8"), time.Hour)
	v := j.Connect(TCP, ap("8.8.8.8"))
	m := j.Meter(TCP, ap("8.8.8.8"), v)
	m.Count(1, 100)
	m.Rename("a.com")
	m.Count(1000, 0)
	lit := j.Connect(TCP, ap("9.9.9.9"))
	j.Meter(TCP, ap("9.9.9.9"), lit).Count(5, 6)
	j.Connect(UDP, ap("9.9.9.9"))
	sums := j.Log().Summary().Sums
	want := []Sum{
		{Name: "a.com", Connections: 1, In: 1001, Out: 100},
		{Addr: netip.MustParseAddr("9.9.9.9"), Connections: 1, Refused: 1, In: 5, Out: 6},
		{Name: "b.com"},
	}
	if !slices.Equal(sums, want) {
		t.Errorf("sums of open flows:\n%+v, want\n%+v", sums, want)
	}
	*now = now.Add(time.Second)
	m.End("because")
	m.End("again")
	p := j.Log().Since(3)
	if len(p.Records) != 1 {
		t.Fatalf("records of ends: %+v", p.Records)
	}
	d := p.Records[0]
	if d.Of != v.Seq || d.Name != "a.com" || d.Aliases != nil || d.In != 1001 || d.Out != 100 || d.Duration != time.Second || d.Reason != "because" || !d.Allowed || d.Rule != v.Rule {
		t.Errorf("%+v", d)
	}
	var none *Meter
	none.Count(1, 1)
	none.Rename("x")
	none.End("")
}

// TestSumsAreBounded: what a guest did first stays, whatever it does later,
// and nothing goes uncounted.
func TestSumsAreBounded(t *testing.T) {
	j, _ := newTestJudge(mustParse(t, `{"allow":["good.com"]}`))
	j.Resolve("secret.evil.com", "TXT")
	for i := range 3 * maxSums {
		name := fmt.Sprintf("n%d.com", i)
		j.Resolve(name, "A")
		j.LookedUp(name, 1, 2, false)
	}
	s := j.Log().Summary()
	if len(s.Sums) != maxSums || s.Other == nil || s.Other.Refused != 2*maxSums+1 {
		t.Fatalf("%d sums, other %+v", len(s.Sums), s.Other)
	}
	in, first := s.Other.In, false
	for _, x := range s.Sums {
		in += x.In
		first = first || x.Name == "secret.evil.com" && x.Refused == 1
	}
	if in != 3*maxSums || !first {
		t.Errorf("%d bytes in, the first name is kept: %v", in, first)
	}
}

// FuzzLog: whatever a guest says, a record stays bounded and harmless, and
// the sums count it once.
func FuzzLog(f *testing.F) {
	f.Add("evil.com", "\x1b[0m", "/a?b", []byte{93, 0, 0, 1}, uint8(3))
	f.Add("", "\xff\xfe", strings.Repeat("x", 600), []byte{}, uint8(0))
	f.Fuzz(func(t *testing.T, name, server, path string, addr []byte, n uint8) {
		j, _ := newTestJudge(mustParse(t, `{"allow":["*"]}`))
		a, _ := netip.AddrFromSlice(addr)
		to := netip.AddrPortFrom(a, 443)
		j.Resolve(name, "A")
		j.Answer(name, a, time.Second)
		v := j.Connect(TCP, to)
		j.ServerName(v, to, server)
		j.Record(Decision{Name: name, Method: server, Path: path}, v)
		for range n {
			j.RefusePacket("icmp", a, "protocol", "%s", name)
		}
		if v.Allowed {
			m := j.Meter(TCP, to, v)
			m.Count(1, 2)
			m.Rename(server)
			m.End(path)
		}
		p := j.Log().Since(0)
		for i, d := range p.Records {
			for _, s := range append(d.Aliases, d.Name, d.Reason, d.Method, d.Path) {
				if len(s) > 3*maxText || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
					t.Errorf("%q in a record", s)
				}
			}
			if d.Seq != uint64(i+1) {
				t.Errorf("record %d has number %d", i+1, d.Seq)
			}
		}
		var in, refused uint64
		for _, s := range j.Log().Summary().Sums {
			in, refused = in+s.In, refused+s.Refused
		}
		if v.Allowed != (in == 1) || refused < uint64(n) {
			t.Errorf("%d bytes in, %d of at least %d refusals", in, refused, n)
		}
	})
}

func FuzzDenyList(f *testing.F) {
	f.Add("evil.com, 10.0.0.0/8 # x\n*.a.b", "evil.com")
	f.Fuzz(func(t *testing.T, text, name string) {
		d, err := ParseDenyList(text)
		if err != nil {
			return
		}
		if v, denied := d.name(NormalName(name)); denied && (v.Allowed || v.Reason == "") {
			t.Errorf("%+v", v)
		}
	})
}

func BenchmarkLog(b *testing.B) {
	j, _ := newTestJudge(mustParse(b, `{"allow":["*.example.com"]}`))
	a := netip.MustParseAddr("8.8.8.8")
	j.Answer("www.example.com", a, time.Hour)
	b.Run("decide", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			j.Connect(TCP, ap("8.8.8.8"))
		}
	})
	b.Run("refuse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			j.Resolve("other.org", "A")
		}
	})
	b.Run("count", func(b *testing.B) {
		m := j.Meter(TCP, ap("8.8.8.8"), Verdict{Allowed: true})
		b.ReportAllocs()
		for b.Loop() {
			m.Count(100, 100)
		}
	})
	b.Run("read all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			j.Log().Since(0)
		}
	})
}
