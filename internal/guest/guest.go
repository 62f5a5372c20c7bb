// Package guest is the host's side of the agent that is PID 1 in every
// sandbox: one multiplexed connection over the machine's cable, on which
// commands are started, followed and signalled and files are moved.
//
// The guest is hostile: every frame is bounded, every wait has a deadline,
// and nothing that it says is taken for more than bytes.
package guest

import (
	"errors"
	"io/fs"
	"regexp"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// Errors of the calls of this package, tested with errors.Is. Those of the
// file calls are the io/fs errors (fs.ErrNotExist, fs.ErrExist,
// fs.ErrPermission) and the ones below, in an *fs.PathError with the guest's
// path.
var (
	// ErrClosed: the connection to the agent is gone.
	ErrClosed = errors.New("connection to the agent is closed")
	// ErrNoDir: a command's working directory does not exist or is none.
	ErrNoDir = errors.New("working directory does not exist")
	// ErrNoCommand: no command has this id (in this machine's life).
	ErrNoCommand = errors.New("no such command")
	// ErrFinished: the command has ended, so it takes no signal or input.
	ErrFinished = errors.New("command has finished")
	// ErrNotRegular: the path is a directory, FIFO, socket or device.
	ErrNotRegular = errors.New("not a regular file")
	// ErrNoSpace: the writable layer is full.
	ErrNoSpace = errors.New("no space left on the sandbox's disk")
	// ErrProtocol: the agent broke the protocol; the connection is closed.
	ErrProtocol = errors.New("agent broke the protocol")
)

// User is who a command runs as.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Command is a process to start. Env is complete: nothing is added to it.
type Command struct {
	// ID is the host's; starting the same ID twice starts it once.
	ID   string
	Argv []string // Argv[0] without a slash is looked up in Env's PATH
	Env  []string // "K=V"
	Dir  string   // absolute; must exist
	User User
	// Stdin: the command reads what WriteStdin sends; otherwise /dev/null.
	Stdin bool
	// TTY: a terminal of this size is stdin, stdout and stderr; output
	// comes as stdout. Implies Stdin.
	TTY *Winsize
}

// Winsize of a terminal in characters.
type Winsize struct{ Rows, Cols uint16 }

// Exit is how a command ended.
type Exit struct {
	// Code: 0–255; 128+N for signal N; 127 not found, 126 not executable
	// (with a line on stderr that names the command).
	Code int
	// At is the guest's clock at the end.
	At time.Time
}

// FileInfo is what Stat tells.
type FileInfo struct {
	Size     int64
	Mode     fs.FileMode
	UID, GID uint32
	ModTime  time.Time
}

// Assembly is how the agent makes the root of a bare machine: an overlay of
// the layers mounted at driver.LayerDir, bottom first, under the writable one.
type Assembly struct {
	Layers int
	// Resumed: the layers were the root of a machine before. Nothing is made
	// but what is asked for here.
	Resumed  bool
	Hostname string
	Extras
	// Dirs are made where missing, with parents, owned by Owner (the
	// working directory of an image that does not have it).
	Dirs  []string
	Owner User
	// Files are written where the image has no say: /etc/hosts,
	// /etc/resolv.conf, /etc/hostname; absolute path to content, root-owned, 0644.
	// What is there with this content already is left alone.
	Files map[string][]byte
	// Drives are mounted after all else is made.
	Drives []Drive
}

// Drive is a disk besides the root: an overlay of the layers mounted at
// driver.DriveLayerDir, bottom first, under the writable one. The i-th of an
// Assembly is the i-th of the machine. The root of one that has no layers
// belongs to Assembly.Owner.
type Drive struct {
	Path     string // where it is mounted; made where missing
	Layers   int
	ReadOnly bool
	Extras   // with absolute paths, below Path
}

// Extras are what layers cannot hold, made in this order.
type Extras struct {
	Devices []Device
	Xattrs  map[string]map[string][]byte // by absolute path and name
	// Links are names that become hard links to what another name is then.
	Links map[string]string
}

// Device is a device file.
type Device struct {
	Path         string // absolute
	Mode         uint32 // st_mode
	UID, GID     uint32
	Major, Minor uint32
	ModTime      time.Time
}

var tempPattern = regexp.MustCompile(`^` + regexp.QuoteMeta(wire.TempPrefix) + `[0-9]+-[0-9]+$`)

// IsTemp reports whether name (of a file, without its directory) is one under
// which WriteTar makes files before they get their own.
func IsTemp(name string) bool { return tempPattern.MatchString(name) }
