package control

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// errLogBroken: the guest sent what is no command log.
var errLogBroken = errors.New("the sandbox sent a broken output stream")

// commandLog is the output of one command on disk: the record stream exactly
// as the guest keeps it, so that its length is the cursor from which the
// guest is asked for more. One pump appends; any number of readers follow,
// each at its own pace and without holding up anybody.
//
// What follows the first limit bytes is kept only until the readers that are
// there have passed it; then its place on disk is given back (the file gets a
// hole) and only its length counts. A reader may lag limit bytes behind;
// beyond that it loses output like one that comes later, since a client that
// stalls must not fill the disk.
type commandLog struct {
	path  string
	limit int64

	mu      sync.Mutex // guards what follows
	f       *os.File
	dec     wire.Decoder
	size    int64 // bytes taken
	whole   int64 // end of the last whole record; readers see what is before
	ended   bool  // nothing more will come
	exit    int64 // offset of the exit record, or of our lines before it; valid once ended
	code    int   // exit code; valid once ended
	kept    int64 // end of what is kept for good; math.MaxInt64 before the limit is reached
	past    int64 // payload bytes from kept on
	gone    int64 // end of what was given back, a record's start; at least kept
	gonePay int64 // payload bytes from kept to gone
	readers map[*LogReader]bool
	changed chan struct{} // closed at the next change; nil while nobody waits
}

func newLog(path string, limit int64) *commandLog {
	return &commandLog{path: path, limit: limit, kept: math.MaxInt64, readers: map[*LogReader]bool{}}
}

// createLog makes an empty log.
func createLog(path string, limit int64) (*commandLog, error) {
	l := newLog(path, limit)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) { // the session's first command
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create command log: %w", err)
	}
	l.f = f
	return l, nil
}

// reopenLog reads a log whose writer died and goes on where it ended: after
// its last byte, or before the first one that makes no sense.
func reopenLog(path string, limit int64) (*commandLog, error) {
	l := newLog(path, limit)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("reopen command log: %w", err)
	}
	l.f = f
	buf := make([]byte, 256<<10)
	for !l.ended {
		n, err := f.ReadAt(buf, l.size)
		switch {
		case l.take(buf[:n]) != nil: // what follows is no log
			return l, nil //nolint:nilerr // see there
		case errors.Is(err, io.EOF):
			return l, nil
		case err != nil:
			return nil, errors.Join(fmt.Errorf("reopen command log: %w", err), f.Close())
		}
	}
	return l, nil
}

// append takes b, which begins at off: the sink of the pump. An error means
// that the guest must keep b.
func (l *commandLog) append(off int64, b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.f == nil || off != l.size {
		return fmt.Errorf("%w: bytes at %d, expected %d", errLogBroken, off, l.size)
	}
	if _, err := l.f.WriteAt(b, off); err != nil {
		return fmt.Errorf("write command log: %w", err)
	}
	err := l.take(b)
	l.wake()
	return err
}

// take counts b, which is in the file.
func (l *commandLog) take(b []byte) error {
	err := l.dec.Feed(b, func(r wire.Record) error {
		if r.Kind == wire.RecordExit {
			l.ended, l.exit, l.code = true, l.whole, min(max(int(r.Code), 0), 255)
			l.whole += wire.ExitRecordSize
			return nil
		}
		end := l.whole + wire.RecordHeaderSize + int64(len(r.Data))
		if end > l.limit {
			if l.kept > l.whole { // the first record beyond the limit
				l.kept, l.gone = l.whole, l.whole
			}
			l.past += int64(len(r.Data))
		}
		l.whole = end
		return nil
	})
	if err != nil { // go on, if at all, behind the last record that makes sense
		l.size, l.dec = l.whole, wire.Decoder{}
		return fmt.Errorf("%w: %w", errLogBroken, err)
	}
	l.size += int64(len(b))
	l.punch(false)
	return nil
}

// end closes a log whose command will tell no more: with lines of the
// server's own on stderr and an exit record. Output of which only a part
// came is kept. Nothing happens to a log that has ended.
func (l *commandLog) end(code int, at int64, lines string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.f == nil {
		return nil
	}
	err := l.closePartial()
	var tail []byte
	if lines != "" {
		tail = make([]byte, wire.RecordHeaderSize, wire.RecordHeaderSize+len(lines))
		wire.PutRecordHeader(tail, wire.RecordStderr, len(lines))
		tail = append(tail, lines...)
	}
	tail = wire.AppendExit(tail, int32(code), at)
	if err == nil {
		_, err = l.f.WriteAt(tail, l.size)
	}
	if err == nil {
		start, past := l.whole, l.past
		err = l.take(tail)
		l.exit, l.past = start, past // our lines are kept, as the exit record is
	}
	// Whatever the disk says, readers must not wait for ever.
	if !l.ended {
		l.ended, l.exit, l.code = true, l.whole, code
	}
	l.wake()
	if err != nil {
		return fmt.Errorf("close command log %s: %w", l.path, err)
	}
	return nil
}

// closePartial makes the incomplete record at the end a whole one, of the
// bytes that came, or removes it where these are not enough.
func (l *commandLog) closePartial() error {
	partial := l.size - l.whole
	payload := partial - wire.RecordHeaderSize
	l.dec = wire.Decoder{}
	if payload <= 0 {
		l.size = l.whole
		return l.f.Truncate(l.size)
	}
	b := make([]byte, partial)
	if _, err := l.f.ReadAt(b, l.whole); err != nil {
		return err
	}
	kind := wire.RecordKind(b[0])
	if payload > wire.MaxRecord || kind != wire.RecordStdout && kind != wire.RecordStderr {
		l.size = l.whole
		return l.f.Truncate(l.size)
	}
	wire.PutRecordHeader(b, kind, int(payload))
	if _, err := l.f.WriteAt(b[:wire.RecordHeaderSize], l.whole); err != nil {
		return err
	}
	l.size = l.whole
	return l.take(b)
}

// wake tells all that wait for a change. Held: mu.
func (l *commandLog) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// change returns a channel that is closed at the next change. Held: mu.
func (l *commandLog) change() <-chan struct{} {
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

// cursor is the position from which the guest must send.
func (l *commandLog) cursor() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// result tells whether the log has ended, and how.
func (l *commandLog) result() (code int, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.code, l.ended
}

// lost tells how much of an ended log is not kept: payload bytes, the end of
// what is kept, and where the exit record is. Zeros where all is.
func (l *commandLog) lost() (payload, kept, exit int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.past == 0 {
		return 0, 0, 0
	}
	return l.past, l.kept, l.exit
}

// release lets the file go once the log has ended and nobody reads it.
func (l *commandLog) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil || !l.ended || len(l.readers) > 0 {
		return
	}
	l.punch(true)
	l.f.Close() //nolint:errcheck // all is written; a late error changes nothing
	l.f = nil
}
