package control

import "time"

// Clock is where control takes the time from.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in a goroutine of its own after d.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is what AfterFunc returns.
type Timer interface {
	// Stop prevents the call, and tells whether it did.
	Stop() bool
}

// realClock is the host's.
type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

func (realClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
