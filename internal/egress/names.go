package egress

import (
	"container/list"
	"net/netip"
	"slices"
	"time"
)

const (
	// nameGrace is how long beyond its TTL an address still counts for the
	// name it was given out for. Clients cache far longer than TTLs say: the
	// JVM for ever by default, connection pools for minutes.
	nameGrace = time.Hour
	// maxTTL bounds what an answer may claim.
	maxTTL = 24 * time.Hour
	// maxNames bounds the (address, name) pairs of one sandbox; the oldest
	// gives way. A sandbox that floods it forgets only its own.
	maxNames = 8192
)

// names remembers for which names an address was given out. Not safe for
// concurrent use; Judge guards it.
type names struct {
	byAddr map[netip.Addr][]*list.Element
	order  *list.List // of *nameEntry, oldest first
}

type nameEntry struct {
	addr  netip.Addr
	name  string
	until time.Time
}

func newNames() *names {
	return &names{byAddr: map[netip.Addr][]*list.Element{}, order: list.New()}
}

func (n *names) remember(now time.Time, name string, addr netip.Addr, ttl time.Duration) {
	until := now.Add(min(max(ttl, 0), maxTTL) + nameGrace)
	for _, el := range n.byAddr[addr] {
		if e := el.Value.(*nameEntry); e.name == name {
			e.until = until
			n.order.MoveToBack(el)
			return
		}
	}
	if n.order.Len() >= maxNames {
		n.drop(n.order.Front())
	}
	n.byAddr[addr] = append(n.byAddr[addr], n.order.PushBack(&nameEntry{addr, name, until}))
}

func (n *names) lookup(now time.Time, addr netip.Addr) []string {
	var out []string
	for _, el := range slices.Clone(n.byAddr[addr]) {
		e := el.Value.(*nameEntry)
		if now.After(e.until) {
			n.drop(el)
			continue
		}
		out = append(out, e.name)
	}
	return out
}

func (n *names) drop(el *list.Element) {
	e := n.order.Remove(el).(*nameEntry)
	rest := slices.DeleteFunc(n.byAddr[e.addr], func(x *list.Element) bool { return x == el })
	if len(rest) == 0 {
		delete(n.byAddr, e.addr)
		return
	}
	n.byAddr[e.addr] = rest
}
