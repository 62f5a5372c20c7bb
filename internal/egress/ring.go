package egress

// ringSize is how many decisions are kept for a sandbox.
const ringSize = 1024

// ring keeps the latest decisions. It grows as it fills: most sandboxes
// decide little. Not safe for concurrent use; Judge guards it.
type ring struct {
	buf  []Decision
	next uint64 // number of decisions ever added
}

func (r *ring) add(d Decision) {
	if len(r.buf) < ringSize {
		r.buf = append(r.buf, d)
	} else {
		r.buf[r.next%ringSize] = d
	}
	r.next++
}

func (r *ring) list() ([]Decision, uint64) {
	if r.next <= ringSize {
		return append([]Decision(nil), r.buf...), 0
	}
	at := r.next % ringSize
	return append(append(make([]Decision, 0, ringSize), r.buf[at:]...), r.buf[:at]...), r.next - ringSize
}
