package egress

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Bounds of what a sandbox can make its log hold: names and paths are the
// guest's own words.
const (
	logSize    = 1024 // latest records
	maxText    = 512  // bytes of one string
	maxAliases = 8    // names of one record
)

// Decision is a Verdict about something, or the end of what it let through,
// as it is kept for the user.
type Decision struct {
	// Seq numbers the records of a log from 1 on.
	Seq  uint64
	Time time.Time
	// Of is the Seq of the decision whose flow has ended; 0 in a decision.
	// A record of an end repeats what the decision was about.
	Of uint64

	Name    string   // that the guest asked for, or its address was given out for
	Aliases []string // further names that the address was given out for
	Addr    netip.AddrPort
	Proto   string // TCP, UDP, DNS, or what a refused packet carried
	Query   string // type of a DNS query
	// Of an HTTP request that was looked into.
	Method, Path string
	Status       int

	Allowed bool
	Rule    string
	Reason  string

	// Of a flow's end: payload into and out of the sandbox, in bytes.
	In, Out  uint64
	Duration time.Duration
}

// Log keeps the latest decisions about one sandbox's traffic, and sums of all
// of them. It grows as it fills: most sandboxes decide little. Safe for
// concurrent use.
type Log struct {
	mu      sync.Mutex // guards what follows
	buf     []Decision
	last    uint64        // Seq of the newest record
	changed chan struct{} // closed at the next record or the end; nil: nobody waits
	closed  bool
	sums    sums
}

// Page is a piece of a Log.
type Page struct {
	Records []Decision // oldest first
	// Dropped is how many records that were asked for are no longer kept.
	Dropped uint64
	// Last is the newest record's Seq, to go on from.
	Last uint64
	// Closed: nothing will follow.
	Closed bool
}

// NewLog returns an empty log.
func NewLog() *Log { return &Log{sums: newSums()} }

// add stores d, cleaned, under the next number, which it returns.
func (l *Log) add(d Decision) uint64 {
	d.clean()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	d.Seq = l.last
	if len(l.buf) < logSize {
		l.buf = append(l.buf, d)
	} else {
		l.buf[(d.Seq-1)%logSize] = d
	}
	l.sums.decided(d)
	l.wake()
	return d.Seq
}

// wake tells those that wait. Held: mu.
func (l *Log) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Since returns the records after number seq that are still kept. A number
// that the log has not reached is one of an earlier log, before the server was
// restarted: then these are all.
func (l *Log) Since(seq uint64) Page {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := Page{Last: l.last, Closed: l.closed}
	if seq > l.last {
		seq = 0
	}
	if seq == l.last {
		return p
	}
	first := l.last - uint64(len(l.buf)) + 1
	if seq+1 < first {
		p.Dropped = first - seq - 1
		seq = first - 1
	}
	p.Records = make([]Decision, 0, l.last-seq)
	for n := seq + 1; n <= l.last; n++ {
		p.Records = append(p.Records, l.buf[(n-1)%logSize])
	}
	return p
}

// Wait returns when Since(seq) has a record, the log is closed or
// ctx ends, and ctx's error then.
func (l *Log) Wait(ctx context.Context, seq uint64) error {
	l.mu.Lock()
	if l.last > 0 && l.last != seq || l.closed {
		l.mu.Unlock()
		return nil
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	changed := l.changed
	l.mu.Unlock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close says that nothing will follow. Idempotent.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wake()
}

func (d *Decision) clean() {
	d.Name, d.Reason, d.Path, d.Method = clean(d.Name), clean(d.Reason), clean(d.Path), clean(d.Method)
	for i, a := range d.Aliases {
		d.Aliases[i] = clean(a)
	}
}

// clean makes what a guest said harmless to show: of bounded length, without
// control characters, valid UTF-8.
func clean(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// named puts names, oldest first, into d: the newest is the likeliest.
func (d Decision) named(names []string) Decision {
	if n := len(names); n > 0 {
		d.Name = names[n-1]
		rest := names[max(0, n-maxAliases) : n-1]
		if len(rest) > 0 {
			d.Aliases = slices.Clone(rest)
			slices.Reverse(d.Aliases)
		}
	}
	return d
}

// someNames joins names for a sentence, which must not grow with what a guest
// has looked up.
func someNames(names []string) string {
	if n := len(names); n > maxAliases {
		return strings.Join(names[n-maxAliases:], ", ") + " and others"
	}
	return strings.Join(names, ", ")
}
