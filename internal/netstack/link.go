package netstack

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

const (
	// cableBuffer is asked for as the socket's send buffer, in bytes: a few
	// dozen full packets, so that a burst needs no wake-up for each.
	cableBuffer = 4 << 20
	// sendWait is how long a packet waits for room on the cable. Waiting is
	// the natural brake on fast senders; the limit keeps a guest that reads
	// nothing from holding goroutines for ever (TCP sends again).
	sendWait = 500 * time.Millisecond
	// headSize holds most packets that carry little, ACKs above all.
	headSize = 2048
)

// link is a stack.LinkEndpoint over the cable. gVisor's fdbased does the
// same, but blocks a thread for each sandbox and holds half a megabyte of
// buffers; this one waits in the runtime's poller and holds no buffer while
// idle. It accepts nothing but IPv4 packets from the guest's address.
type link struct {
	file *os.File // our duplicate of the cable
	raw  syscall.RawConn
	mtu  atomic.Uint32
	wg   sync.WaitGroup

	// from is the only source address that is accepted; none means any, as
	// the other end of a cable needs it.
	from    tcpip.Address
	refuse  refusePacket
	dropped atomic.Uint64 // packets refused by accept

	sending sync.Mutex // held while a packet is sent; guards stalled
	stalled bool

	mu         sync.RWMutex // guards dispatcher
	dispatcher stack.NetworkDispatcher
}

var _ stack.LinkEndpoint = (*link)(nil)

func newLink(cable int, refuse refusePacket) (*link, error) {
	fd, err := unix.FcntlInt(uintptr(cable), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate descriptor %d: %w", cable, err)
	}
	if typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || typ != unix.SOCK_SEQPACKET && typ != unix.SOCK_DGRAM {
		unix.Close(fd)
		return nil, fmt.Errorf("descriptor %d is no packet socket", cable)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make descriptor %d non-blocking: %w", cable, err)
	}
	// FORCE needs privileges; without them what the host allows must do.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, cableBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, cableBuffer)
	}
	l := &link{file: os.NewFile(uintptr(fd), "cable"), from: tcpip.AddrFrom4(driver.GuestAddr.As4()), refuse: refuse}
	l.mtu.Store(driver.MTU)
	if l.raw, err = l.file.SyscallConn(); err != nil {
		l.file.Close()
		return nil, fmt.Errorf("poll descriptor %d: %w", cable, err)
	}
	return l, nil
}

// stop makes every present and later read and write fail, and waits until
// nothing is delivered any more. It must come before stack.Stack.Wait, which
// would wait for the same with a lock held that a delivery takes.
func (l *link) stop() {
	l.file.Close()
	l.wg.Wait()
}

// readLoop delivers packets until the cable ends.
func (l *link) readLoop() {
	var in inbound
	defer in.release()
	for {
		var n int
		var err error
		closed := l.raw.Read(func(fd uintptr) bool {
			n, err = in.read(int(fd))
			if errors.Is(err, unix.EAGAIN) {
				in.release()
				return false
			}
			return true
		})
		switch {
		case closed != nil:
			return
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || n == 0: // the guest's end is closed
			return
		}
		l.deliver(in.take(n))
	}
}

func (l *link) deliver(buf buffer.Buffer) {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buf})
	defer pkt.DecRef()
	if !l.accept(pkt) {
		l.dropped.Add(1)
		return
	}
	l.mu.RLock()
	d := l.dispatcher
	l.mu.RUnlock()
	if d != nil {
		pkt.RXChecksumValidated = true
		d.DeliverNetworkPacket(ipv4.ProtocolNumber, pkt)
	}
}

// inbound is the memory that the next packet is read into: a small piece for
// its head and a large one for the rest, kept for the next packet when that
// stays empty.
type inbound struct{ head, tail *buffer.View }

func (b *inbound) read(fd int) (int, error) {
	if b.head == nil {
		b.head = buffer.NewViewSize(headSize)
	}
	if b.tail == nil {
		b.tail = buffer.NewViewSize(driver.MTU)
	}
	return unix.Readv(fd, [][]byte{b.head.AsSlice(), b.tail.AsSlice()})
}

// take hands over the packet of n bytes that was read.
func (b *inbound) take(n int) buffer.Buffer {
	head := b.head
	b.head = nil
	if n <= headSize {
		head.CapLength(n)
		return buffer.MakeWithView(head)
	}
	buf := buffer.MakeWithView(head)
	b.tail.CapLength(n - headSize)
	_ = buf.Append(b.tail)
	b.tail = nil
	return buf
}

func (b *inbound) release() {
	if b.head != nil {
		b.head.Release()
	}
	if b.tail != nil {
		b.tail.Release()
	}
	b.head, b.tail = nil, nil
}

// WritePackets implements stack.LinkWriter. Packets that find no room in
// time are dropped, as a network does.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	for i, pkt := range pkts.AsSlice() {
		if !l.write(pkt.AsSlices()) {
			return i, &tcpip.ErrNoBufferSpace{}
		}
	}
	return pkts.Len(), nil
}

// write sends one packet. Once one has found no room in time, the next ones
// do not wait either, until the guest reads again.
func (l *link) write(parts [][]byte) bool {
	l.sending.Lock()
	defer l.sending.Unlock()
	waited, sent := false, false
	err := l.raw.Write(func(fd uintptr) bool {
		_, err := unix.Writev(int(fd), parts)
		for errors.Is(err, unix.EINTR) {
			_, err = unix.Writev(int(fd), parts)
		}
		if !errors.Is(err, unix.EAGAIN) || l.stalled {
			sent = err == nil
			return true
		}
		if !waited {
			waited = true
			_ = l.file.SetWriteDeadline(time.Now().Add(sendWait))
		}
		return false
	})
	if waited {
		_ = l.file.SetWriteDeadline(time.Time{})
	}
	l.stalled = err != nil || !sent
	return !l.stalled
}

// Attach implements stack.NetworkLinkEndpoint.
func (l *link) Attach(d stack.NetworkDispatcher) {
	l.mu.Lock()
	first := l.dispatcher == nil && d != nil
	l.dispatcher = d
	l.mu.Unlock()
	if first {
		l.wg.Add(1)
		go func() {
			defer l.wg.Done()
			l.readLoop()
		}()
	}
	if d == nil {
		l.file.Close()
	}
}

// IsAttached implements stack.NetworkLinkEndpoint.
func (l *link) IsAttached() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.dispatcher != nil
}

// Capabilities implements stack.NetworkLinkEndpoint. Both ends of the cable
// are memory of this host: checksums would guard nothing.
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload | stack.CapabilityTXChecksumOffload
}

// The rest of stack.LinkEndpoint: a link without headers or addresses.

func (l *link) MTU() uint32                             { return l.mtu.Load() }
func (l *link) SetMTU(mtu uint32)                       { l.mtu.Store(mtu) }
func (l *link) MaxHeaderLength() uint16                 { return 0 }
func (l *link) LinkAddress() tcpip.LinkAddress          { return "" }
func (l *link) SetLinkAddress(tcpip.LinkAddress)        {}
func (l *link) Wait()                                   { l.wg.Wait() }
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (l *link) AddHeader(*stack.PacketBuffer)           {}
func (l *link) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (l *link) Close()                                  { l.file.Close() }
func (l *link) SetOnCloseAction(func())                 {}
