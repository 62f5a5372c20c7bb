package main

import (
	"runtime"
	"syscall"
	"time"
)

// source is what the loop calls when a descriptor is ready.
type source interface{ event(events uint32) }

// timer calls f once at its time. The zero value is not armed.
type timer struct {
	at    time.Time
	f     func()
	armed bool
}

// loop waits for descriptors and timers on one thread.
type loop struct {
	ep      int
	sources []watch // by descriptor
	gen     int32
	timers  []*timer // few: a linear search is enough
	dirty   []flusher
	events  [64]syscall.EpollEvent
}

// watch is a source and the generation of its descriptor: what epoll still
// says of one that was closed must not reach the next of the same number.
type watch struct {
	source
	gen int32
}

// flusher has output to send at the end of a turn of the loop.
type flusher interface{ flush() }

func (l *loop) init() (err error) {
	l.ep, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	return err
}

func (l *loop) add(fd int, events uint32, s source) error {
	for fd >= len(l.sources) {
		l.sources = append(l.sources, watch{})
	}
	l.gen++
	ev := syscall.EpollEvent{Events: events, Fd: int32(fd), Pad: l.gen}
	if err := syscall.EpollCtl(l.ep, syscall.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return opErr("epoll", err)
	}
	l.sources[fd] = watch{s, l.gen}
	return nil
}

func (l *loop) mod(fd int, events uint32) {
	ev := syscall.EpollEvent{Events: events, Fd: int32(fd), Pad: l.sources[fd].gen}
	_ = syscall.EpollCtl(l.ep, syscall.EPOLL_CTL_MOD, fd, &ev)
}

// rewatch gives a watched descriptor another source.
func (l *loop) rewatch(fd int, events uint32, s source) {
	l.sources[fd].source = s
	l.mod(fd, events)
}

// remove stops watching a descriptor that stays open.
func (l *loop) remove(fd int) {
	_ = syscall.EpollCtl(l.ep, syscall.EPOLL_CTL_DEL, fd, nil)
	l.forget(fd)
}

func (l *loop) forget(fd int) {
	if fd < len(l.sources) {
		l.sources[fd] = watch{}
	}
}

// close closes a descriptor, which ends its watch too: no other process has
// the same open file.
func (l *loop) close(fd int) {
	l.forget(fd)
	_ = syscall.Close(fd)
}

// touch calls f.flush at the end of this turn. The caller sees to it that f
// is not added twice.
func (l *loop) touch(f flusher) { l.dirty = append(l.dirty, f) }

func (l *loop) arm(t *timer, at time.Time) {
	t.at = at
	if !t.armed {
		t.armed = true
		l.timers = append(l.timers, t)
	}
}

func (l *loop) disarm(t *timer) {
	if !t.armed {
		return
	}
	t.armed = false
	for i, x := range l.timers {
		if x == t {
			last := len(l.timers) - 1
			l.timers[i] = l.timers[last]
			l.timers[last] = nil
			l.timers = l.timers[:last]
			return
		}
	}
}

// timeout is how long the next wait may take, in milliseconds; -1: for ever.
func (l *loop) timeout() int {
	if len(l.dirty) > 0 {
		return 0
	}
	if len(l.timers) == 0 {
		return -1
	}
	first := l.timers[0].at
	for _, t := range l.timers[1:] {
		if t.at.Before(first) {
			first = t.at
		}
	}
	d := time.Until(first)
	if d <= 0 {
		return 0
	}
	return int(d/time.Millisecond) + 1
}

// run is the loop; it returns only when waiting fails.
func (a *agent) run() error {
	for {
		n, err := syscall.EpollWait(a.ep, a.events[:], a.timeout())
		if err != nil && err != syscall.EINTR {
			return opErr("epoll_wait", err)
		}
		// Tells the runtime that this goroutine is not one that runs for ever.
		runtime.Gosched()
		for i := range max(n, 0) {
			ev := &a.events[i]
			if w := a.sources[ev.Fd]; w.source != nil && w.gen == ev.Pad {
				w.event(ev.Events)
			}
		}
		a.fire()
		a.flushAll()
	}
}

func (l *loop) fire() {
	if len(l.timers) == 0 {
		return
	}
	now := time.Now()
	var due []*timer
	for _, t := range l.timers {
		if !t.at.After(now) {
			due = append(due, t)
		}
	}
	for _, t := range due {
		if t.armed { // an earlier one may have disarmed it
			l.disarm(t)
			t.f()
		}
	}
}

// flushAll flushes what was touched. A flush may touch again, for the next
// turn, so that a long stream does not keep other work waiting.
func (l *loop) flushAll() {
	if len(l.dirty) == 0 {
		return
	}
	work := l.dirty
	l.dirty = nil
	for i, f := range work {
		f.flush()
		work[i] = nil
	}
	if l.dirty == nil {
		l.dirty = work[:0]
	}
}
