package main

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// step is one system call of a child between vfork and execve.
type step struct {
	nr, a1, a2, a3, a4 uintptr
	onError            uintptr
	errno              uintptr // set by the child when the call fails
}

// What a child does when a step fails.
const (
	stopChild uintptr = iota
	nextPath          // goes on after ENOENT, EACCES and ENOTDIR, as execvp(3) does
)

// cloneArgs is the kernel's struct clone_args, version 0.
type cloneArgs struct {
	flags, pidfd, _, _, exitSignal, _, _, _ uint64
}

// vforkRun makes a child that shares this process's memory, runs steps in it
// while this thread waits, and returns when the child has become another
// program or has ended. Where a step ended it, *failed is that step's index.
//
//go:noescape
func vforkRun(clone *cloneArgs, size uintptr, steps *step, n uintptr, failed *uintptr, masks *[2]uint64) (pid, errno uintptr)

func handlerAddrs() (handler, restorer uintptr)

// The child reads these by address, so they must not be on a stack.
var (
	childClone  cloneArgs
	childSteps  []step
	childFailed uintptr
	childPIDFD  int32
	childZero   = [2]byte{'0', '\n'}
	childMasks  [2]uint64 // all signals; the thread's own mask meanwhile
	noSignals   uint64
)

func addr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// noFailure is the failed index of a child whose steps all went well.
const noFailure = ^uintptr(0)

// spawn runs childSteps. Signals are held back meanwhile: a handler must not
// run in the child, which has this process's memory. CLONE_CLEAR_SIGHAND has
// reset the handlers when the child lets signals through again.
func spawn(keep ...any) (pid, pidfd int, err error) {
	childClone = cloneArgs{
		flags:      unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_PIDFD | unix.CLONE_CLEAR_SIGHAND,
		pidfd:      uint64(addr(&childPIDFD)),
		exitSignal: uint64(unix.SIGCHLD),
	}
	childFailed = noFailure
	childMasks = [2]uint64{^uint64(0)}
	r, errno := vforkRun(&childClone, unsafe.Sizeof(childClone), &childSteps[0], uintptr(len(childSteps)), &childFailed, &childMasks)
	runtime.KeepAlive(keep)
	if errno != 0 {
		return 0, -1, opErr("clone", syscall.Errno(errno))
	}
	return int(r), int(childPIDFD), nil
}

// cstrings lays strings out as C does: one block of bytes, and for each list
// an array of pointers that a nil ends. It fails for a string with a NUL.
func cstrings(lists ...[]string) (arrays [][]*byte, err error) {
	size, count := 0, 0
	for _, l := range lists {
		count += len(l) + 1
		for _, s := range l {
			size += len(s) + 1
		}
	}
	block := make([]byte, 0, size)
	ptrs := make([]*byte, 0, count)
	for _, l := range lists {
		first := len(ptrs)
		for _, s := range l {
			at := len(block)
			block = append(append(block, s...), 0)
			for _, c := range block[at : len(block)-1] {
				if c == 0 {
					return nil, syscall.EINVAL
				}
			}
			ptrs = append(ptrs, &block[at])
		}
		ptrs = append(ptrs, nil)
		arrays = append(arrays, ptrs[first:])
	}
	return arrays, nil
}

// sigaction is the kernel's struct; flags and restorer as amd64 has them,
// ignored elsewhere.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// quietSignals keeps the signals that root in the sandbox may send from
// ending the sandbox: a kernel that is not Linux may not protect process 1.
// A handler and not SIG_IGN, since children would inherit that. SIGCHLD has
// no handler at all: it would interrupt the loop for every child.
func quietSignals() {
	const onStack, restart, restorerFlag = 0x08000000, 0x10000000, 0x04000000 // SA_…
	handler, restorer := handlerAddrs()
	sa := sigaction{handler: handler, flags: onStack | restart, restorer: restorer}
	if restorer != 0 {
		sa.flags |= restorerFlag
	}
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGPIPE, syscall.SIGABRT, syscall.SIGTRAP} {
		setAction(s, &sa)
	}
	setAction(syscall.SIGCHLD, &sigaction{})
	// What whoever started this process ignored, children would ignore, too.
	for s := syscall.Signal(1); s <= lastSignal; s++ {
		var now sigaction
		_, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), 0, addr(&now), 8, 0, 0)
		if e == 0 && now.handler == sigIgn {
			setAction(s, &sigaction{})
		}
	}
}

const (
	sigIgn     = 1  // SIG_IGN
	lastSignal = 64 // of a 64-bit signal set
)

func setAction(s syscall.Signal, sa *sigaction) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(sa)), 0, 8, 0, 0)
}
