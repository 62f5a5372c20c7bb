package egress

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// maxSums is how many names and addresses have sums of their own; what comes
// later counts together. The first ones stay: a guest cannot hide what it did
// by doing much else.
const maxSums = 1024

// Sum is what was decided and moved for one name, or for one address that no
// name led to.
type Sum struct {
	Name string
	Addr netip.Addr // where there is no name
	// Lookups that were allowed, and whether one was answered with a record.
	Lookups  uint64
	Answered bool
	// Connections and UDP sessions that were allowed.
	Connections, Datagrams uint64
	Refused                uint64 // look-ups, connections and datagrams
	In, Out                uint64 // payload into and out of the sandbox, in bytes
}

// Summary is what a sandbox has done in the network since its start.
type Summary struct {
	In, Out uint64 // of the whole sandbox, in bytes
	Sums    []Sum  // by traffic, most first
	// Other is all that found no place of its own; nil if nothing.
	Other *Sum
}

// sums are guarded by the mu of their Log.
type sums struct {
	byKey map[string]*Sum
	other *Sum
}

func newSums() sums { return sums{byKey: map[string]*Sum{}} }

func (s *sums) of(name string, addr netip.Addr) *Sum {
	key := name
	if name == "" {
		key = addr.String() // no name looks like an address here: patterns refuse them
	}
	if t := s.byKey[key]; t != nil {
		return t
	}
	if len(s.byKey) >= maxSums {
		if s.other == nil {
			s.other = &Sum{}
		}
		return s.other
	}
	t := &Sum{Name: name}
	if name == "" {
		t.Addr = addr
	}
	s.byKey[key] = t
	return t
}

func (s *sums) decided(d Decision) {
	if d.Of != 0 || d.Method != "" && d.Allowed {
		return // part of a flow that has counted already
	}
	t := s.of(d.Name, d.Addr.Addr())
	switch {
	case !d.Allowed:
		t.Refused++
	case d.Proto == DNS:
		t.Lookups++
	case d.Proto == UDP:
		t.Datagrams++
	default:
		t.Connections++
	}
}

// Summary returns the sums as they are now.
func (l *Log) Summary() Summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out Summary
	for _, s := range l.sums.byKey {
		out.Sums = append(out.Sums, *s)
	}
	slices.SortFunc(out.Sums, func(a, b Sum) int {
		return cmp.Or(cmp.Compare(b.In+b.Out, a.In+a.Out), cmp.Compare(a.Name, b.Name), a.Addr.Compare(b.Addr))
	})
	if l.sums.other != nil {
		other := *l.sums.other
		out.Other = &other
	}
	return out
}

// LookedUp counts the bytes of a look-up of name that was decided about, and
// notes whether it was answered with a record.
func (j *Judge) LookedUp(name string, in, out int, answered bool) {
	l := j.log
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.sums.byKey[clean(NormalName(name))]
	if t == nil {
		t = l.sums.other
	}
	if t == nil {
		return // nothing was decided: the guest's own name
	}
	t.In += uint64(in)
	t.Out += uint64(out)
	t.Answered = t.Answered || answered
}

// Meter counts the bytes of one flow. A nil Meter counts nothing. Safe for
// concurrent use.
type Meter struct {
	log   *Log
	now   func() time.Time
	start time.Time

	// Guarded by log.mu.
	d     Decision
	sum   *Sum
	ended bool
}

// Meter returns what counts the bytes of the flow to addr that v allowed.
func (j *Judge) Meter(proto string, addr netip.AddrPort, v Verdict) *Meter {
	d := Decision{Of: v.Seq, Addr: addr, Proto: proto, Allowed: true, Rule: v.Rule}.named(v.about())
	d.clean()
	m := &Meter{log: j.log, now: j.now, start: j.now(), d: d}
	j.log.mu.Lock()
	defer j.log.mu.Unlock()
	m.sum = j.log.sums.of(d.Name, addr.Addr())
	return m
}

// Count adds payload into and out of the sandbox, in bytes.
func (m *Meter) Count(in, out int) {
	if m == nil {
		return
	}
	m.log.mu.Lock()
	defer m.log.mu.Unlock()
	m.d.In += uint64(in)
	m.d.Out += uint64(out)
	m.sum.In += uint64(in)
	m.sum.Out += uint64(out)
}

// Rename says that the flow is about name alone: the guest has said so.
func (m *Meter) Rename(name string) {
	if m == nil {
		return
	}
	m.log.mu.Lock()
	defer m.log.mu.Unlock()
	m.d.Name, m.d.Aliases = name, nil
	m.d.clean()
	to := m.log.sums.of(m.d.Name, netip.Addr{})
	if to == m.sum {
		return
	}
	m.sum.In -= m.d.In
	m.sum.Out -= m.d.Out
	m.sum.Connections--
	to.In += m.d.In
	to.Out += m.d.Out
	to.Connections++
	m.sum = to
}

// End records that the flow is over, once; reason says why where it was not
// the peers' wish.
func (m *Meter) End(reason string) {
	if m == nil {
		return
	}
	now := m.now()
	m.log.mu.Lock()
	ended, d := m.ended, m.d
	m.ended = true
	m.log.mu.Unlock()
	if ended {
		return
	}
	d.Time, d.Duration, d.Reason = now, now.Sub(m.start), reason
	m.log.add(d)
}
