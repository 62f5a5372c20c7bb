package sentryhook

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
)

// orphanTime is how long a kernel goes on when its server has died and no
// other one has taken it over: nobody ends it at its time-out meanwhile. Tests
// set it.
var orphanTime = 15 * time.Minute

// exitOrphan is the kernel's exit status then. Nobody is there to see it.
const exitOrphan = 124

// Lease is the session that holds a lease for a server that takes over; its
// end of the pipe travels with the call.
func Lease() seccheck.SessionConfig { return session(map[string]any{"op": opLease}) }

var leases struct {
	mu    sync.Mutex
	held  int
	timer *time.Timer // runs while none is held
}

// Hold keeps this process for as long as the other end of the pipe f is open,
// and then orphanTime longer, in which another lease may come. It owns f.
func Hold(f *os.File) {
	leases.mu.Lock()
	leases.held++
	if leases.timer != nil {
		leases.timer.Stop()
		leases.timer = nil
	}
	leases.mu.Unlock()
	go func() {
		// The other end writes nothing, so what this ends with is its closing.
		_, _ = f.Read(make([]byte, 1))
		f.Close()
		leases.mu.Lock()
		defer leases.mu.Unlock()
		if leases.held--; leases.held == 0 {
			leases.timer = time.AfterFunc(orphanTime, func() { os.Exit(exitOrphan) })
		}
	}()
}

func hold(pipe *fd.FD) error {
	if pipe == nil {
		return errors.New("sentryhook: lease: no file came with the call")
	}
	n := pipe.Release()
	if n < 0 {
		return fmt.Errorf("sentryhook: lease: descriptor %d", n)
	}
	Hold(os.NewFile(uintptr(n), "lease"))
	return nil
}
