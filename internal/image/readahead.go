package image

import (
	"io"
	"sync"
)

// aheadReader reads its source in a goroutine of its own, a few buffers
// ahead, so that decompression and what is done with its result share two
// processors.
type aheadReader struct {
	filled chan []byte
	free   chan []byte
	done   chan struct{}
	stop   sync.Once
	ended  chan struct{}
	err    error // of the source, set before filled is closed
	cur    []byte
	whole  []byte
}

const (
	aheadBuffers = 4
	aheadSize    = 256 << 10
)

// readAhead starts reading r. Close ends that once the read under way returns.
func readAhead(r io.Reader) *aheadReader {
	a := &aheadReader{
		filled: make(chan []byte, aheadBuffers),
		free:   make(chan []byte, aheadBuffers),
		done:   make(chan struct{}),
		ended:  make(chan struct{}),
	}
	for range aheadBuffers {
		a.free <- make([]byte, aheadSize)
	}
	go a.fill(r)
	return a
}

func (a *aheadReader) fill(r io.Reader) {
	defer close(a.ended)
	defer close(a.filled)
	for {
		select {
		case <-a.done:
			a.err = io.ErrClosedPipe
			return
		case b := <-a.free:
			n, err := io.ReadFull(r, b)
			a.filled <- b[:n] // has room for all buffers
			if err == nil {
				continue
			}
			if a.err = err; err == io.ErrUnexpectedEOF {
				a.err = io.EOF // of ReadFull; sources wrap theirs
			}
			return
		}
	}
}

func (a *aheadReader) Read(b []byte) (int, error) {
	for len(a.cur) == 0 {
		if a.whole != nil {
			a.free <- a.whole[:aheadSize]
			a.whole = nil
		}
		next, ok := <-a.filled
		if !ok {
			return 0, a.err
		}
		a.cur, a.whole = next, next
	}
	n := copy(b, a.cur)
	a.cur = a.cur[n:]
	return n, nil
}

// Close waits for the goroutine; it may be called again, but not beside Read.
func (a *aheadReader) Close() error {
	a.stop.Do(func() { close(a.done) })
	<-a.ended
	return nil
}
