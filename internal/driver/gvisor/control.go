package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// controlSocket is the name of the socket in the machine's directory on which
// its kernel takes calls.
const controlSocket = "control.sock"

// shortPath is a name for dir/controlSocket that fits into a socket address
// (108 bytes) whatever the length of dir. It is good until the function is
// called.
func shortPath(dir string) (string, func(), error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", fd, controlSocket), func() { unix.Close(fd) }, nil
}

// bindControl makes the socket file and returns the socket; the kernel
// listens on it.
func bindControl(dir string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make the control socket: %w", err)
	}
	path, done, err := shortPath(dir)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
		done()
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind the control socket: %w", err)
	}
	return os.NewFile(uintptr(fd), "control"), nil
}

// errNoAnswer marks errors of calls that the kernel neither carried out nor
// refused: it has ended, most likely.
var errNoAnswer = errors.New("the sandbox kernel does not answer")

// errNoInit marks errors of calls that a kernel refused since its PID 1 has
// ended; it is about to end itself, which takes a while when it has to end
// hundreds of processes first.
var errNoInit = errors.New("PID 1 has ended")

const stoppedText = "has stopped" // in such a refusal

// call makes one call to the kernel of the machine in dir. A call that the
// kernel does not answer ends with ctx.
func call(ctx context.Context, dir, method string, args, result any) error {
	path, done, err := shortPath(dir)
	if err != nil {
		return err
	}
	conn, err := client.ConnectTo(path)
	done()
	if err != nil {
		return fmt.Errorf("%w: connect: %w", errNoAnswer, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Socket.Shutdown() })
	defer stop()
	err = conn.Call(method, args, result)
	var refused urpc.RemoteError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("call %s: %w", method, ctx.Err())
	case errors.As(err, &refused) && strings.Contains(refused.Message, stoppedText):
		return fmt.Errorf("%w: call %s: %w", errNoInit, method, err)
	case errors.As(err, &refused):
		return fmt.Errorf("call %s: %w", method, err)
	default:
		return fmt.Errorf("%w: call %s: %w", errNoAnswer, method, err)
	}
}

// cableBuffer is the size in bytes of each direction of a cable.
const cableBuffer = 4 << 20

// newCable makes the two ends of a cable: ours, and the guest's.
func newCable() (host int, guest *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, nil, fmt.Errorf("make the cable: %w", err)
	}
	for _, fd := range fds {
		// Beyond net.core.{w,r}mem_max with CAP_NET_ADMIN; without it the
		// cable is slower.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, cableBuffer)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, cableBuffer)
	}
	return fds[0], os.NewFile(uintptr(fds[1]), "guest's cable"), nil
}

// links is the guest's network: loopback, and the cable as an interface with
// the default route. That has no IPv6 address, so IPv6 beyond loopback fails at
// once.
func links(name string, cable *os.File) *boot.CreateLinksAndRoutesArgs {
	subnet := net.IPNet{
		IP:   driver.Subnet.Masked().Addr().AsSlice(),
		Mask: net.CIDRMask(driver.Subnet.Bits(), 32),
	}
	return &boot.CreateLinksAndRoutesArgs{
		LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink},
		FDBasedLinks: []boot.FDBasedLink{{
			// With a queue a full cable loses packets. Without one gVisor tells
			// senders of datagrams to try again and has forgotten the datagram
			// by then: they send empty ones for ever, and cannot be killed.
			Name: name, MTU: driver.MTU, NumChannels: 1, QDisc: config.QDiscFIFO,
			Addresses: []boot.IPWithPrefix{{Address: driver.GuestAddr.AsSlice(), PrefixLen: driver.Subnet.Bits()}},
			Routes:    []boot.Route{{Destination: subnet}},
			// Both ends are memory of this host: nothing to sum up.
			TXChecksumOffload: true, RXChecksumOffload: true,
		}},
		Defaultv4Gateway: boot.DefaultRoute{Name: name, Route: boot.Route{
			Destination: net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
			Gateway:     driver.GatewayAddr.AsSlice(),
		}},
		FilePayload: urpc.FilePayload{Files: []*os.File{cable}},
	}
}
