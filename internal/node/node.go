// Package node is what one host runs: machines with a guest and a network,
// a pool of warm ones, limits, usage, and the removal of what a dead server
// left. Control talks to it through Node and Machine, which say nothing that
// a network could not carry.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/egress"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/oidc"
	"github.com/glovebox-dev/glovebox/internal/snapshot"
)

// ErrCapacity: the node has no memory left for another machine.
var ErrCapacity = errors.New("no capacity left on this node")

// Spec describes a machine that holds an image and can run commands.
type Spec struct {
	ID    string // the session's id
	Image image.Image
	// Layers of a snapshot on top of the image's, bottom first; with those of
	// the image at most driver.MaxLayers. Their digests are enough.
	Layers      []image.Layer
	Drives      []Drive // at most driver.MaxDrives
	VCPUs       int
	MemoryBytes int64
	DiskBytes   int64
	Policy      egress.Policy
	// Identity is whom requests tell of that a policy forwards.
	Identity oidc.Identity
}

// Capacity is what a node can give.
type Capacity struct {
	VCPUs       int   // CPUs of the host
	MaxVCPUs    int   // most that one sandbox may ask for
	MemoryBytes int64 // for all machines together
}

// Usage of one machine since its start.
type Usage struct {
	driver.Usage
	IngressBytes, EgressBytes int64 // over the sandbox's network, previews included
}

// PoolStatus tells of the warm machines of one (image, size).
type PoolStatus struct {
	Image       string `json:"image"`
	VCPUs       int    `json:"vcpus"`
	MemoryBytes int64  `json:"memoryBytes"`
	Ready       int    `json:"ready"`
	Starting    int    `json:"starting"`
	Target      int    `json:"target"`
	Hits        int64  `json:"hits"`
	Misses      int64  `json:"misses"`
}

// Status of a node.
type Status struct {
	Driver          string       `json:"driver"`
	Running         int          `json:"running"` // machines that hold a session
	MemoryCommitted int64        `json:"memoryCommittedBytes"`
	MemoryLimit     int64        `json:"memoryLimitBytes"`
	Pool            []PoolStatus `json:"pool"`
}

// Node runs machines. Safe for concurrent use.
type Node interface {
	Capacity() Capacity
	// Start returns a machine that can run commands: a warm one where there
	// is one, else a new one. The machine outlives ctx.
	Start(ctx context.Context, spec Spec) (Machine, error)
	// Adopt takes over the machine of a session that an earlier server, which
	// has died, left running. spec is as it was for Start, and state what
	// Machine.State said. Commands, files and listening servers are as they
	// were; connections of the guest are lost. On error the machine may have
	// ended. Call it before Sweep.
	Adopt(ctx context.Context, spec Spec, state json.RawMessage) (Machine, error)
	// Sweep ends and removes what an earlier server left and Adopt did not
	// take, once, before the first Start.
	Sweep(ctx context.Context) error
	// Keep has the pool hold machines of this image and size for good; others
	// wait only while they are in demand.
	Keep(img image.Image, vcpus int, memoryBytes, diskBytes int64)
	Status() Status
	// MergeLayers makes one layer of several of a snapshot's (bottom first),
	// which stand on base (the image's, and perhaps further ones), for chains
	// that grow too long.
	MergeLayers(ctx context.Context, base, layers []image.Layer) (image.Layer, error)
	// DiffLayers calls yield for what is different in stack b from stack a,
	// each with the image's layers, bottom first.
	DiffLayers(ctx context.Context, a, b []image.Layer, yield func(snapshot.Change) error) error
	// PruneLayers removes the layers of snapshots for which keep says false
	// and that no running machine uses, and returns them; a dry run only tells.
	// A layer that SaveDisk or MergeLayers has just returned stays for some
	// minutes, until keep knows it.
	PruneLayers(ctx context.Context, keep func(digest string) bool, dryRun bool) ([]snapshot.Removed, error)
	// Leave ends the machines that hold no session, and leaves the others to
	// the Adopt of another process; this one ends now.
	Leave(ctx context.Context) error
	// Close ends every machine and waits until nothing of them is left.
	Close(ctx context.Context) error
}

// Machine is a session's machine. Safe for concurrent use. After Done every
// call that does not say otherwise returns driver.ErrStopped (or
// guest.ErrClosed).
type Machine interface {
	ID() string
	// State is what a later server needs to take the machine over. It holds
	// a secret.
	State() json.RawMessage
	Done() <-chan struct{}
	// Err tells, after Done, why: driver.ErrStopped, ErrOutOfMemory, ErrKernel.
	Err() error

	// StartCommand starts c; errors: guest.ErrNoDir, and for a command that
	// cannot be executed none: its exit code is 126 or 127.
	StartCommand(ctx context.Context, c guest.Command) error
	// Attach copies the command's log from byte cursor on to sink, until its
	// end (then nil), ctx's end or an error. sink gets consecutive pieces of
	// the record stream (guest/wire.Record) with their offset; what sink has
	// taken is acknowledged and forgotten by the guest. One Attach a command
	// at a time: a newer one ends the older.
	Attach(ctx context.Context, id string, cursor int64, sink func(off int64, b []byte) error) error
	// Signal sends sig to the command's process group, or with tree to the
	// process and all its descendants, those that left its session too.
	Signal(ctx context.Context, id string, sig int, tree bool) error
	// WriteStdin writes to a command with Stdin or TTY; CloseStdin ends it.
	WriteStdin(ctx context.Context, id string, p []byte) error
	CloseStdin(ctx context.Context, id string) error
	Resize(ctx context.Context, id string, size guest.Winsize) error

	// ReadFile opens a regular file with root's rights.
	ReadFile(ctx context.Context, path string) (io.ReadCloser, guest.FileInfo, error)
	Stat(ctx context.Context, path string) (guest.FileInfo, error)
	// Mkdir makes one directory; its parent must exist.
	Mkdir(ctx context.Context, path string, owner guest.User) error
	// WriteTar unpacks a (plain) tar stream below dir with root's rights:
	// parents are made, everything belongs to owner, each file is written
	// beside its final name, and all are renamed only after the stream's end
	// (verify, called then, agreed). On any error nothing is renamed.
	WriteTar(ctx context.Context, dir string, owner guest.User, r io.Reader, verify func() error) error

	// Dial connects to a TCP port of the guest: on its address, or on its
	// loopback addresses where only those listen. syscall.ECONNREFUSED where
	// nothing listens.
	Dial(ctx context.Context, port int) (net.Conn, error)
	// SetPolicy replaces the network policy: new connections obey it, and
	// open ones that it forbids are closed. Where it has rules, the guest is
	// first made to trust the CA by which connections are opened.
	SetPolicy(ctx context.Context, p egress.Policy) error
	// Env are variables that commands need besides, under the user's own:
	// where the CA is, once the guest trusts it.
	Env() map[string]string
	Usage(ctx context.Context) (Usage, error)
	// NetworkLog returns the decisions about the guest's traffic after number
	// since; with wait it first waits for one, or for the machine's end. After
	// Done it goes on to answer, and so does NetworkSummary.
	NetworkLog(ctx context.Context, since uint64, wait bool) (egress.Page, error)
	NetworkSummary(ctx context.Context) (egress.Summary, error)
	// SaveDisk keeps what the guest has written since its start as layers on
	// top of those that it was started from: the guest is frozen, its writable
	// layers are saved as they are at that moment, and with GoOn it goes on
	// afterwards, else the machine is ended (Done is closed when SaveDisk
	// returns). The layers are whole and on disk for good when it returns. On
	// an error the guest goes on, also without GoOn, so that nothing is lost
	// (unless the machine has ended by itself).
	SaveDisk(ctx context.Context, what Save) (Saved, error)
	// Stop ends the machine and waits until nothing of it is left. Idempotent.
	Stop(ctx context.Context) error
}

// Save says how a machine's disk is saved, and what of it besides the drives
// that can be written.
type Save struct {
	GoOn       bool
	DrivesOnly bool // the root is not kept
	UseReserve bool // the host's reserve may be touched: what is not kept now is lost
}

// Saved are the layers that a save made; nil where nothing was written.
type Saved struct {
	Layer  *image.Layer
	Drives []*image.Layer // in the order of Spec.Drives
}

// StopTimeout bounds how long Stop may take before it gives up on a clean end.
const StopTimeout = 10 * time.Second
