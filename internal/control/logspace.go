package control

import (
	"math"

	"golang.org/x/sys/unix"
)

// punchStep is how much must be free before a hole is made: each is a call.
const punchStep = 1 << 20

// punch gives back the disk space between what is kept and what every reader
// has passed, the end of the output where there is none. all: also where it
// is little. A file system that cannot make holes keeps everything. Held: mu.
func (l *commandLog) punch(all bool) {
	if l.kept == math.MaxInt64 || l.f == nil {
		return
	}
	low, lowPay := l.whole, l.past
	if l.ended {
		low = l.exit
	}
	for r := range l.readers {
		if r.pos < low && r.pos >= l.whole-l.limit {
			low, lowPay = r.pos, r.past
		}
	}
	if low <= l.gone || !all && low-l.gone < punchStep {
		return
	}
	err := unix.Fallocate(int(l.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, l.gone, low-l.gone)
	if err == nil {
		l.gone, l.gonePay = low, lowPay
	}
}

// leastLog is what is kept of a command's output however full the disk is.
const leastLog = 64 << 10

// logLimit is how much of a new command's output is kept: less than the
// server's limit where that would touch the host's reserve.
func (c *Control) logLimit() int64 {
	limit := c.cfg.Limits.CommandLogSize
	if c.cfg.Reserve == nil {
		return limit
	}
	left, err := c.cfg.Reserve.Left()
	if err != nil {
		return limit // the disk will say
	}
	return min(limit, max(left, leastLog))
}
