package image

import (
	"io"
	"sync"
)

// Stages of making an image, in the order in which they come.
const (
	StageResolve  = "resolve"  // asking the registry, or reading the archive's index
	StagePackages = "packages" // installing the packages of a recipe
	StageDownload = "download"
	StageUnpack   = "unpack"
	StageWrite    = "write"
)

// Progress is one report on the making of an image.
type Progress struct {
	Stage string
	// Detail is a line for humans, such as the name of a package; may be empty.
	Detail string
	// Done and Total count bytes of this stage; Total is 0 where unknown.
	Done, Total int64
}

// ProgressFunc receives reports, one at a time and in order; it must not
// block. Nil is allowed wherever one is taken.
type ProgressFunc func(Progress)

func (f ProgressFunc) report(p Progress) {
	if f != nil {
		f(p)
	}
}

// serial keeps the promise of ProgressFunc where several goroutines report.
func (f ProgressFunc) serial() ProgressFunc {
	if f == nil {
		return nil
	}
	var mu sync.Mutex
	return func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		f(p)
	}
}

// progressStep is how many bytes pass between two reports.
const progressStep = 4 << 20

// countReader tells add of bytes as they pass.
type countReader struct {
	r   io.Reader
	add func(n int64)
}

func (c *countReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.add(int64(n))
	return n, err
}

// countBytes reports every few megabytes that pass through r.
func (f ProgressFunc) countBytes(r io.Reader, stage, detail string, total int64) io.Reader {
	if f == nil {
		return r
	}
	var done, said int64
	return &countReader{r: r, add: func(n int64) {
		done += n
		if done-said >= progressStep || done == total && n > 0 {
			said = done
			f(Progress{Stage: stage, Detail: detail, Done: done, Total: total})
		}
	}}
}
