#include "textflag.h"

// func vforkRun(clone *cloneArgs, size uintptr, steps *step, n uintptr, failed *uintptr, masks *[2]uint64) (pid, errno uintptr)
//
// Signals are held back from before the clone until after it, here and not in
// Go, so that no other goroutine gets this thread meanwhile.
//
// The child shares the stack, so it only reads registers and makes system
// calls until it is another program: it never pushes, calls or returns.
TEXT ·vforkRun(SB),NOSPLIT|NOFRAME,$0-64
	MOVQ	steps+16(FP), R12
	MOVQ	n+24(FP), R13
	MOVQ	failed+32(FP), R15
	MOVQ	masks+40(FP), R14
	MOVQ	$2, DI // SIG_SETMASK
	MOVQ	R14, SI
	LEAQ	8(R14), DX
	MOVQ	$8, R10
	MOVQ	$14, AX // rt_sigprocmask
	SYSCALL
	MOVQ	clone+0(FP), DI
	MOVQ	size+8(FP), SI
	MOVQ	$435, AX // clone3
	SYSCALL
	TESTQ	AX, AX
	JZ	child
	MOVQ	AX, R12
	MOVQ	$2, DI
	LEAQ	8(R14), SI
	XORQ	DX, DX
	MOVQ	$8, R10
	MOVQ	$14, AX
	SYSCALL
	MOVQ	R12, AX
	CMPQ	AX, $0xfffffffffffff001
	JCC	failedClone
	MOVQ	AX, pid+48(FP)
	MOVQ	$0, errno+56(FP)
	RET

failedClone:
	NEGQ	AX
	MOVQ	$-1, pid+48(FP)
	MOVQ	AX, errno+56(FP)
	RET

child:
	XORQ	BX, BX

loop:
	CMPQ	BX, R13
	JCC	exit
	MOVQ	0(R12), AX
	MOVQ	8(R12), DI
	MOVQ	16(R12), SI
	MOVQ	24(R12), DX
	MOVQ	32(R12), R10
	XORQ	R8, R8
	XORQ	R9, R9
	SYSCALL
	CMPQ	AX, $0xfffffffffffff001
	JCS	next
	NEGQ	AX
	MOVQ	AX, 48(R12) // errno
	MOVQ	40(R12), CX // onError
	CMPQ	CX, $1      // nextPath
	JNE	stop
	CMPQ	AX, $2      // ENOENT
	JEQ	next
	CMPQ	AX, $13     // EACCES
	JEQ	next
	CMPQ	AX, $20     // ENOTDIR
	JEQ	next

stop:
	MOVQ	BX, 0(R15)
	JMP	exit

next:
	ADDQ	$56, R12
	INCQ	BX
	JMP	loop

exit:
	MOVQ	$127, DI
	MOVQ	$231, AX // exit_group
	SYSCALL
	INT	$3

// noSignal is a handler that does nothing; its restorer is below.
TEXT ·noSignal(SB),NOSPLIT|NOFRAME,$0
	RET

TEXT ·sigReturn(SB),NOSPLIT|NOFRAME,$0
	MOVQ	$15, AX // rt_sigreturn
	SYSCALL
	INT	$3

// func handlerAddrs() (handler, restorer uintptr)
TEXT ·handlerAddrs(SB),NOSPLIT,$0-16
	LEAQ	·noSignal(SB), AX
	MOVQ	AX, handler+0(FP)
	LEAQ	·sigReturn(SB), AX
	MOVQ	AX, restorer+8(FP)
	RET
