package gvisor

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	archSetCPUID = 0x1012 // ARCH_SET_CPUID of arch_prctl(2)
	// Offsets in struct seccomp_data; of the argument, the low half.
	dataNr, dataArch, dataArg0 = 0, 4, 16
)

// leaveCPUID lets code in the stub processes of this kernel execute the CPUID
// instruction, by refusing the system call with which gVisor would make each
// one a fault that its kernel answers. That is how gVisor runs on every
// processor that has no such faults, most of AMD's among them, so nothing
// depends on it; and the loader of every dynamic program executes about 67.
// The filter is inherited by the stubs; gVisor's own come on top of it.
func leaveCPUID() error {
	prog := []unix.SockFilter{
		load(dataArch), unless(unix.AUDIT_ARCH_X86_64, 5),
		load(dataNr), unless(unix.SYS_ARCH_PRCTL, 3),
		load(dataArg0), unless(archSetCPUID, 1),
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	// For all threads at once: the runtime has several already.
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno != 0 || r != 0 {
		return fmt.Errorf("set a seccomp filter: %w (thread %d)", errno, r)
	}
	return nil
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// unless skips n instructions where what was loaded is not k.
func unless(k uint32, n uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: n}
}
