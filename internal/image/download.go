package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	// parallelDownloads is how many layers come at the same time.
	parallelDownloads = 3
	downloadAttempts  = 3
)

// stallTimeout ends a pull whose registry sends nothing any more.
var stallTimeout = time.Minute

// downloads fetches the compressed layers of one image into files, from the
// bottom up, a few at a time.
type downloads struct {
	dir      string
	layers   []v1.Layer
	progress ProgressFunc
	total    int64
	next     atomic.Int64 // index of the layer to fetch next
	received atomic.Int64 // bytes
	left     atomic.Int64 // layers not complete
	ready    []chan struct{}
	complete chan struct{} // closed when left is 0
}

func newDownloads(dir string, layers []v1.Layer, progress ProgressFunc) *downloads {
	d := &downloads{dir: dir, layers: layers, progress: progress, complete: make(chan struct{})}
	for _, l := range layers {
		if n, err := l.Size(); err == nil {
			d.total += n
		}
		d.ready = append(d.ready, make(chan struct{}))
	}
	d.left.Store(int64(len(layers)))
	if len(layers) == 0 {
		close(d.complete)
	}
	return d
}

func (d *downloads) path(i int) string { return filepath.Join(d.dir, fmt.Sprintf("layer-%d", i)) }

// open waits for layer i. Its file can be opened once.
func (d *downloads) open(ctx context.Context, i int) (io.ReadCloser, error) {
	select {
	case <-d.ready[i]:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f, err := os.Open(d.path(i))
	if err != nil {
		return nil, err
	}
	if err := os.Remove(d.path(i)); err != nil { // its blocks go with the reader
		f.Close()
		return nil, err
	}
	return f, nil
}

// work fetches layers until none is left; several may run at once.
func (d *downloads) work(ctx context.Context) error {
	for {
		i := int(d.next.Add(1)) - 1
		if i >= len(d.layers) {
			return nil
		}
		if err := d.retry(ctx, i); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(d.layers), err)
		}
		close(d.ready[i])
		if d.left.Add(-1) == 0 {
			close(d.complete)
		}
	}
}

func (d *downloads) retry(ctx context.Context, i int) error {
	for attempt := 1; ; attempt++ {
		before := d.received.Load()
		err := d.fetch(ctx, d.layers[i], d.path(i))
		if err == nil || attempt == downloadAttempts || ctx.Err() != nil || !errors.Is(classify(err), ErrUnavailable) {
			return err
		}
		d.received.Store(before)
		select {
		case <-time.After(time.Duration(attempt) * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fetch writes one layer to a file and checks its digest.
func (d *downloads) fetch(ctx context.Context, l v1.Layer, path string) error {
	want, err := l.Digest()
	if err != nil {
		return err
	}
	size, err := l.Size()
	if err != nil {
		return err
	}
	rc, err := l.Compressed()
	if err != nil {
		return err
	}
	defer rc.Close()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	h := sha256.New()
	in := &countReader{r: io.LimitReader(rc, size+1), add: d.count}
	_, err = io.Copy(io.MultiWriter(f, h), in)
	if err = errors.Join(err, f.Close(), ctx.Err()); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want.Hex {
		return fmt.Errorf("%w: its content has the digest sha256:%s instead of %s", ErrArchive, got, want)
	}
	return nil
}

func (d *downloads) count(n int64) {
	done := d.received.Add(n)
	if done/progressStep != (done-n)/progressStep || done == d.total && n > 0 {
		d.progress.report(Progress{Stage: StageDownload, Done: done, Total: d.total})
	}
}

// watch fails when no byte has come for stallTimeout, and returns when all
// layers are complete.
func (d *downloads) watch(ctx context.Context) error {
	tick := time.NewTicker(stallTimeout)
	defer tick.Stop()
	for last := int64(-1); ; {
		select {
		case <-d.complete:
			return nil
		case <-ctx.Done():
			return nil
		case <-tick.C:
			now := d.received.Load()
			if now == last {
				return fmt.Errorf("%w: it has sent nothing for %v", ErrUnavailable, stallTimeout)
			}
			last = now
		}
	}
}
