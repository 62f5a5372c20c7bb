package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/guest/wire"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// LogReader follows a command's output from its first byte. Not safe for
// concurrent use, but Close may be called at any time.
type LogReader struct {
	log *commandLog

	// Guarded by log.mu.
	pos    int64 // a record's start
	past   int64 // payload bytes from log.kept to pos
	missed int64 // payload bytes that were gone before they were read
	closed bool

	raw   bool
	buf   []byte
	out   textDecoder
	err   textDecoder
	queue []api.LogLine
	done  bool // what is in queue is the rest
	close sync.Once
}

// errReaderClosed is what Next returns after Close.
var errReaderClosed = errors.New("log reader is closed")

// reader starts to follow l, or returns nil where its file is let go already.
func (l *commandLog) reader() *LogReader {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	r := &LogReader{log: l}
	l.readers[r] = true
	return r
}

// readFinished opens the log of a command that has ended.
func readFinished(path string, c store.Command) (*LogReader, error) {
	l := newLog(path, math.MaxInt64)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open command log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open command log: %w", err), f.Close())
	}
	l.f, l.ended, l.size, l.whole = f, true, info.Size(), info.Size()
	l.exit = l.whole
	if c.LostBytes > 0 {
		l.kept, l.gone, l.exit = c.KeptBytes, c.ExitOffset, c.ExitOffset
		l.past, l.gonePay = c.LostBytes, c.LostBytes
	}
	return l.reader(), nil
}

// Raw makes Next return output as it is, not as valid UTF-8. Call it before
// Next.
func (r *LogReader) Raw() { r.raw = true }

// Next returns the next piece of output, valid UTF-8 unless Raw, of api.Stdout
// or api.Stderr, and waits for it where there is none. After the command's end
// it returns io.EOF.
func (r *LogReader) Next(ctx context.Context) (stream, data string, err error) {
	for len(r.queue) == 0 {
		if r.done {
			return "", "", io.EOF
		}
		n, wait, err := r.read()
		if err != nil {
			return "", "", err
		}
		if wait != nil {
			select {
			case <-wait:
			case <-ctx.Done():
				return "", "", ctx.Err()
			}
			continue
		}
		r.parse(r.buf[:n])
	}
	line := r.queue[0]
	r.queue = r.queue[1:]
	return line.Stream, line.Data, nil
}

// read fills buf with what is at pos: whole records, but for the last. Where
// there is nothing yet it returns a channel to wait for.
func (r *LogReader) read() (n int, wait <-chan struct{}, err error) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if r.closed {
			return 0, nil, errReaderClosed
		}
		r.skipGone()
		end := l.whole
		if r.pos < l.kept {
			end = min(end, l.kept) // the next may be gone
		}
		if r.pos >= end {
			if l.ended {
				r.finish()
				return 0, nil, nil
			}
			return 0, l.change(), nil
		}
		const most = wire.MaxRecord + wire.RecordHeaderSize
		want := int(min(end-r.pos, most))
		if len(r.buf) < want {
			r.buf = make([]byte, want)
		}
		// The disk may be slow: not under the lock. What is gone by then
		// reads as zeros, and skipGone moves on.
		pos, f := r.pos, l.f
		l.mu.Unlock()
		n, err = f.ReadAt(r.buf[:want], pos)
		l.mu.Lock()
		if r.closed || pos >= l.kept && pos < l.gone {
			continue
		}
		if n < want {
			return 0, nil, fmt.Errorf("read command log: %w", err)
		}
		return n, nil, nil
	}
}

// skipGone moves to where the output is still there. Held: log.mu.
func (r *LogReader) skipGone() {
	l := r.log
	if r.pos < l.kept || r.pos >= l.gone {
		return
	}
	r.missed += l.gonePay - r.past
	r.pos, r.past = l.gone, l.gonePay
}

// parse queues the records at the start of b and moves behind them.
func (r *LogReader) parse(b []byte) {
	if r.done {
		return
	}
	var moved, payload int64
	var run []byte // consecutive records of one stream, joined
	var kind wire.RecordKind
	for len(b) > 0 {
		rec, size, err := wire.ParseRecord(b)
		if err != nil || size == 0 { // the rest is not whole: its writer died
			break
		}
		if rec.Kind != kind {
			r.push(kind, run)
			kind, run = rec.Kind, run[:0]
		}
		run = append(run, rec.Data...)
		b, moved, payload = b[size:], moved+int64(size), payload+int64(len(rec.Data))
	}
	r.push(kind, run)
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.pos >= l.kept {
		r.past += payload
	}
	r.pos += moved
	if moved == 0 || kind == wire.RecordExit {
		r.finish()
	}
	l.punch(false)
}

func (r *LogReader) push(kind wire.RecordKind, b []byte) {
	stream, dec := api.Stdout, &r.out
	switch kind {
	case wire.RecordStderr:
		stream, dec = api.Stderr, &r.err
	case wire.RecordStdout:
	default:
		return
	}
	text := string(b)
	if !r.raw {
		text = dec.decode(b)
	}
	if text != "" {
		r.queue = append(r.queue, api.LogLine{Stream: stream, Data: text})
	}
}

// finish queues what ends the output. Held: log.mu.
func (r *LogReader) finish() {
	r.done = true
	last := ""
	if r.missed > 0 {
		last = fmt.Sprintf("glovebox: %d bytes of output were not kept: a command's output is stored up to %d bytes\n", r.missed, r.log.kept)
	}
	for _, l := range []api.LogLine{{Stream: api.Stdout, Data: r.out.flush()}, {Stream: api.Stderr, Data: r.err.flush()}, {Stream: api.Stderr, Data: last}} {
		if l.Data != "" {
			r.queue = append(r.queue, l)
		}
	}
}

// Close stops following. Idempotent.
func (r *LogReader) Close() error {
	r.close.Do(func() {
		l := r.log
		l.mu.Lock()
		r.closed = true
		delete(l.readers, r)
		l.wake()
		l.mu.Unlock()
		l.release()
	})
	return nil
}
