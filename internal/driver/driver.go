// Package driver is the interface of a machine: something that isolates a
// guest, whose first process is the Glovebox agent, behind one network cable.
//
// A driver knows nothing of sandboxes, sessions, users or policies. It starts
// a bare machine (the agent and nothing else), mounts layers into it, limits
// it, measures it and ends it. Everything else goes over the cable.
package driver

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"time"
)

// The guest's end of every cable. All machines use the same addresses, since
// each cable ends in a network stack of its own.
var (
	GuestAddr   = netip.MustParseAddr("10.88.0.2")
	GatewayAddr = netip.MustParseAddr("10.88.0.1")
	Subnet      = netip.MustParsePrefix("10.88.0.0/24")
)

const (
	// AgentPort is the TCP port on GuestAddr at which the agent listens; it
	// accepts connections from GatewayAddr alone.
	AgentPort = 61000
	// MTU of the cable in bytes; frames are bare IP packets, no link header.
	MTU = 65520
)

// Errors that a Machine ends with (Machine.Err) or that Start returns.
var (
	// ErrOutOfMemory: the host's kernel ended the machine at its memory limit.
	ErrOutOfMemory = errors.New("out of memory")
	// ErrKernel: the guest's kernel ended by itself (a crash, or PID 1 ended).
	ErrKernel = errors.New("the sandbox kernel ended unexpectedly")
	// ErrStopped: Stop was called, or the machine had ended before the call.
	ErrStopped = errors.New("machine is stopped")
)

// Spec describes a machine. What a running machine cannot change is here;
// the CPU quota follows VCPUs.
type Spec struct {
	// ID is unique among the driver's machines: 1–64 of [a-z0-9_-].
	ID string
	// VCPUs is how many CPUs the guest sees and may use at most.
	VCPUs int
	// MemoryBytes is what the guest sees as total memory and may use; the
	// driver adds its own overhead to the limit it sets on the host.
	MemoryBytes int64
	// DiskBytes bounds the writable layer (ENOSPC beyond).
	DiskBytes int64
	// Hostname inside.
	Hostname string
}

// Usage is what a machine has used so far.
type Usage struct {
	CPU         time.Duration // host CPU time, kernel and guest
	MemoryBytes int64         // resident now, guest and overhead
	DiskBytes   int64         // blocks allocated by the writable layer
}

// Driver makes machines. Safe for concurrent use.
type Driver interface {
	// Name is a short constant, such as "gvisor".
	Name() string
	// Start boots a bare machine. On error nothing of it remains. The
	// machine outlives ctx, which only bounds the start.
	Start(ctx context.Context, spec Spec) (Machine, error)
	// Adopt takes over a machine that an earlier server, which has died, left
	// running: it gets a new cable, and what was saving its disk is over. Of
	// the guest's connections over the old cable nothing is left. On error
	// the machine is as before, for Sweep. Layers cannot be mounted into it.
	Adopt(ctx context.Context, id string) (Machine, error)
	// Sweep ends and removes what machines of an earlier, dead server left
	// (processes, cgroups, sockets, files) and returns their IDs. It
	// leaves those of this driver alone, adopted ones too.
	Sweep(ctx context.Context) ([]string, error)
	// Check tells what keeps this host from running machines, one entry a
	// problem; none means that Start should work.
	Check(ctx context.Context) []Problem
}

// Problem is one finding of Driver.Check.
type Problem struct {
	Title  string // what is wrong, in one line
	Remedy string // what to do about it
	Fatal  bool   // false: works, but worse
}

// Machine is a running machine. Safe for concurrent use.
//
// Life cycle: Start → running → (Stop, or ends by itself) → ended. Done is
// closed once it has ended and everything of it on the host is gone.
type Machine interface {
	ID() string
	// Cable is the host's end of the network cable: a SEQPACKET socket, one
	// IP packet a message, at most MTU bytes. The machine owns the
	// descriptor and closes it after Done; users must not use it after that.
	Cable() int
	// MountLayers mounts EROFS images read-only into the guest at LayerDir(0),
	// LayerDir(1), …, in the order given, to be assembled by the agent. Once
	// in a machine's life, before the agent assembles the root.
	MountLayers(ctx context.Context, images []string) error
	// MountDrives gives the guest further disks, to be assembled by the agent:
	// at DriveDir(0), … a writable layer each, and its layers at
	// DriveLayerDir(0, 0), …, in the order given. At most once in a machine's
	// life, after MountLayers and before the agent assembles the root.
	MountDrives(ctx context.Context, drives []Drive) error
	// Usage measures.
	Usage(ctx context.Context) (Usage, error)
	// Exec runs argv as root with the machine's own means, not the agent's;
	// the way in when the agent is gone. It returns the exit code.
	Exec(ctx context.Context, argv []string) (output []byte, code int, err error)
	// SaveDisk saves the writable layers: it stops the guest's processes, has
	// the kernel tell what was written since the start, and calls use with
	// that: first the root's, then the drives', as they were at one moment.
	// Then the guest goes on, with goOn, or where anything failed, use
	// included; else the machine is ended as by Stop. A Disk is not valid
	// after use.
	SaveDisk(ctx context.Context, goOn bool, use func([]Disk) error) error
	// Stop ends the machine, at once and whatever the guest does, removes
	// all that it left, and waits for that. Idempotent.
	Stop(ctx context.Context) error
	// Done is closed when the machine has ended.
	Done() <-chan struct{}
	// Err is nil until Done is closed; then ErrStopped, ErrOutOfMemory or
	// ErrKernel, possibly wrapped.
	Err() error
}

// Drive is a disk of a machine besides its root.
type Drive struct {
	Layers []string // files of EROFS images, bottom first; at most MaxLayers
	// Bytes bounds the writable layer (ENOSPC beyond).
	Bytes int64
}

// Disk is a saved writable layer. It is not safe for concurrent use.
type Disk interface {
	// Entries calls yield for everything the guest wrote, parents before
	// children and the root (Path "") first, until yield fails. It may be
	// called again, from yield too.
	Entries(yield func(DiskEntry) error) error
	// Done says that no more will be read, content neither: a guest that is
	// to go on need not wait for the rest of use, once all disks are done.
	Done()
}

// DiskEntry is a file, directory, link, device, FIFO, socket or whiteout of a
// writable layer, with the names and numbers of the guest. Its strings are
// the guest's and to be taken for hostile.
type DiskEntry struct {
	Path     string // relative to the root, cleaned, without ".."
	Mode     uint32 // st_mode: type and permissions
	UID, GID uint32
	ModTime  time.Time
	// Major and Minor number a device; a character device 0:0 is a whiteout,
	// which hides the name in the layers below.
	Major, Minor uint32
	Target       string // of a symbolic link
	// Inode tells the names of one file: those whose number is the same and
	// not zero. It is zero where there is but one name.
	Inode  uint64
	Opaque bool // directory that hides what lower layers have in it
	Xattrs map[string][]byte
	Size   int64 // of a regular file
	// Content of a regular file; what is not in Extents is zero.
	Content io.ReaderAt
	// Extents are the ranges of a regular file that may be other than zero,
	// in order, within Size.
	Extents []Extent
}

// Extent is a range of a file's bytes.
type Extent struct{ Offset, Length int64 }

// LayerDir is the directory in a bare machine at which layer i is mounted.
func LayerDir(i int) string { return "/l" + string(rune('0'+i)) }

// DriveDir is the directory in a bare machine that holds the writable layer of
// drive i, as UpperDir that of the root.
func DriveDir(i int) string { return "/d" + string(rune('0'+i)) }

// DriveLayerDir is the directory in a bare machine at which layer j of drive i
// is mounted.
func DriveLayerDir(i, j int) string { return DriveDir(i) + LayerDir(j)[1:] }

const (
	// MaxLayers is how many layers the root of a machine takes, and each drive.
	MaxLayers = 8
	// MaxDrives is how many drives a machine takes.
	MaxDrives = 4
	// EmptyDir is an empty directory of a bare machine: the lower layer of a
	// drive that has none.
	EmptyDir = "/empty"
	// UpperDir is the directory in a bare machine that holds the writable
	// layer's file system (limited to Spec.DiskBytes).
	UpperDir = "/up"
	// UpperTree is the directory in UpperDir that the agent makes the
	// writable layer: what SaveDisk saves.
	UpperTree = "u"
	// NewRootDir is the empty directory at which the agent assembles.
	NewRootDir = "/newroot"
)
