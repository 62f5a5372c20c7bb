package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/server"
)

// readiness is what /healthz tells.
type readiness struct {
	mu sync.Mutex
	h  server.Health
}

func newReadiness() *readiness {
	return &readiness{h: server.Health{Status: server.HealthStarting, Reason: "the server is starting"}}
}

func (r *readiness) set(h server.Health) {
	r.mu.Lock()
	r.h = h
	r.mu.Unlock()
}

func (r *readiness) health() server.Health {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.h
}

// imageRetry is the pause before a failed default image is tried again.
const imageRetry = 30 * time.Second

// prepare makes the default image where it is missing, and warm machines of
// it; then sandboxes can be made. It returns when that is done or ctx ends.
func (d *Daemon) prepare(ctx context.Context) {
	if d.cfg.OneShot {
		d.ready.set(server.Health{Status: server.HealthOK})
		return
	}
	for {
		img, err := d.images.Resolve(ctx, image.DefaultReference, d.imageProgress())
		if err == nil {
			d.keepWarm(img)
			d.ready.set(server.Health{Status: server.HealthOK})
			d.log.Info("ready", "image", img.Reference, "digest", img.Digest)
			return
		}
		if ctx.Err() != nil {
			return
		}
		d.log.Error("make the default image", "image", image.DefaultReference, "err", err, "retry", imageRetry)
		d.ready.set(server.Health{Status: server.HealthStarting, Reason: fmt.Sprintf("the default image could not be made: %v", err)})
		select {
		case <-ctx.Done():
			return
		case <-time.After(imageRetry):
		}
	}
}

// imageProgress reports to /healthz at once and to the log every few seconds.
func (d *Daemon) imageProgress() image.ProgressFunc {
	const every = 5 * time.Second
	var logged time.Time
	var stage string
	return func(p image.Progress) {
		h := server.Health{Status: server.HealthStarting, Reason: fmt.Sprintf("making the default image: %s %s", p.Stage, p.Detail)}
		if p.Total > 0 {
			h.Progress = float64(p.Done) / float64(p.Total)
		}
		d.ready.set(h)
		if p.Stage == stage && time.Since(logged) < every {
			return
		}
		stage, logged = p.Stage, time.Now()
		d.log.Info("making the default image", "stage", p.Stage, "detail", p.Detail, "done", p.Done, "total", p.Total)
	}
}

// keepWarm has the node hold machines for a create call that names nothing.
func (d *Daemon) keepWarm(img image.Image) {
	memory := int64(api.DefaultVCPUs) * api.MemoryPerVCPU << 20
	d.node.Keep(img, api.DefaultVCPUs, memory, d.control.Limits().DiskBytes)
}
