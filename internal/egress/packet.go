package egress

import (
	"fmt"
	"net/netip"
	"time"
)

const (
	// packetPause is how long a refused packet is only counted after one like
	// it was recorded: a guest sends them by the million.
	packetPause = time.Minute
	maxPackets  = 256 // kinds that are remembered
)

// packetKind is what makes refused packets alike.
type packetKind struct {
	proto, rule string
	to          netip.Addr
}

// RefusePacket notes a packet to addr that belongs to nothing that could be
// judged: of another protocol, or with a false sender.
func (j *Judge) RefusePacket(proto string, to netip.Addr, rule, format string, args ...any) {
	kind := packetKind{proto, rule, to}
	now := j.now()
	j.mu.Lock()
	last, seen := j.packets[kind]
	again := seen && now.Sub(last) < packetPause
	if !again {
		if len(j.packets) >= maxPackets {
			clear(j.packets)
		}
		j.packets[kind] = now
	}
	j.mu.Unlock()
	if again {
		j.log.mu.Lock()
		defer j.log.mu.Unlock()
		j.log.sums.of("", to).Refused++
		return
	}
	j.Record(Decision{Addr: netip.AddrPortFrom(to, 0), Proto: proto}, Verdict{Rule: rule, Reason: fmt.Sprintf(format, args...)})
}
