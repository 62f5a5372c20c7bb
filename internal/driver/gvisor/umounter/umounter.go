// Package umounter makes a 200-byte program that waits for a byte and then
// detaches a mount.
//
// A booting sandbox kernel needs such a helper for its /proc: it will have
// dropped the right to unmount by the time that it no longer needs /proc.
// gVisor executes its whole binary again for that, which costs 20 ms of every
// start (the initialisers of some hundred packages) and 20 MB while it waits.
// This program is assembled by the Go tool chain into our own text and
// wrapped into an ELF file of its own, so that no C compiler is needed.
package umounter

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bounds is where the program lies in our text.
func bounds() (start, end uintptr)

const (
	loadAddr   = 0x400000
	minFD      = 100
	headerSize = 64 + 56 // ELF header and one program header
)

// ELF is the program: it is to be called as `NAME ARG… MOUNTPOINT` with the
// read end of a pipe at descriptor 3; it exits 0 when it got a byte and has
// detached the mount.
func ELF() []byte {
	start, end := bounds()
	// The text of this very process: unsafe.Slice needs a pointer, and the
	// address is no Go object, so vet has nothing to say to this form.
	code := unsafe.Slice(*(**byte)(unsafe.Pointer(&start)), end-start)
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	size := uint64(headerSize + len(code))
	var b bytes.Buffer
	h := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Entry: loadAddr + headerSize, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	h.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	p := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Vaddr: loadAddr, Paddr: loadAddr, Filesz: size, Memsz: size, Align: 0x10000,
	}
	// Writes to a bytes.Buffer of fixed-size values do not fail.
	_ = binary.Write(&b, binary.LittleEndian, h)
	_ = binary.Write(&b, binary.LittleEndian, p)
	b.Write(code)
	return b.Bytes()
}

// Open puts the program into a sealed memory file that anybody may execute.
// Its name is Path(f); it is closed on exec.
func Open() (*os.File, error) {
	fd, err := unix.MemfdCreate("umounter", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create memory file for the umount helper: %w", err)
	}
	// Out of the way of descriptors that a new process is given, which are
	// put into place before the path is looked up.
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, minFD)
	unix.Close(fd)
	if err != nil {
		return nil, fmt.Errorf("move the umount helper's descriptor: %w", err)
	}
	f := os.NewFile(uintptr(high), "umounter")
	if _, err = f.Write(ELF()); err == nil {
		err = f.Chmod(0o555)
	}
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS,
			unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("write the umount helper: %w", err)
	}
	return f, nil
}

// Path is a name under which this process can execute f, in any root that
// has /proc.
func Path(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
