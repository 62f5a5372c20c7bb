#include "textflag.h"

// func vforkRun(clone *cloneArgs, size uintptr, steps *step, n uintptr, failed *uintptr, masks *[2]uint64) (pid, errno uintptr)
//
// Signals are held back from before the clone until after it, here and not in
// Go, so that no other goroutine gets this thread meanwhile.
//
// The child shares the stack, so it only reads registers and makes system
// calls until it is another program: it never stores to the stack, calls or
// returns.
TEXT ·vforkRun(SB),NOSPLIT|NOFRAME,$0-64
	MOVD	steps+16(FP), R19
	MOVD	n+24(FP), R20
	MOVD	failed+32(FP), R21
	MOVD	masks+40(FP), R23
	MOVD	$2, R0 // SIG_SETMASK
	MOVD	R23, R1
	ADD	$8, R23, R2
	MOVD	$8, R3
	MOVD	$135, R8 // rt_sigprocmask
	SVC
	MOVD	clone+0(FP), R0
	MOVD	size+8(FP), R1
	MOVD	$435, R8 // clone3
	SVC
	CBZ	R0, child
	MOVD	R0, R19
	MOVD	$2, R0
	ADD	$8, R23, R1
	MOVD	ZR, R2
	MOVD	$8, R3
	MOVD	$135, R8
	SVC
	MOVD	R19, R0
	CMN	$4095, R0
	BCS	failedClone
	MOVD	R0, pid+48(FP)
	MOVD	ZR, errno+56(FP)
	RET

failedClone:
	NEG	R0, R0
	MOVD	$-1, R1
	MOVD	R1, pid+48(FP)
	MOVD	R0, errno+56(FP)
	RET

child:
	MOVD	$0, R22

loop:
	CMP	R20, R22
	BHS	exit
	MOVD	0(R19), R8
	MOVD	8(R19), R0
	MOVD	16(R19), R1
	MOVD	24(R19), R2
	MOVD	32(R19), R3
	MOVD	$0, R4
	MOVD	$0, R5
	SVC
	CMN	$4095, R0
	BCC	next
	NEG	R0, R0
	MOVD	R0, 48(R19) // errno
	MOVD	40(R19), R6 // onError
	CMP	$1, R6      // nextPath
	BNE	stop
	CMP	$2, R0      // ENOENT
	BEQ	next
	CMP	$13, R0     // EACCES
	BEQ	next
	CMP	$20, R0     // ENOTDIR
	BEQ	next

stop:
	MOVD	R22, 0(R21)
	B	exit

next:
	ADD	$56, R19
	ADD	$1, R22
	B	loop

exit:
	MOVD	$127, R0
	MOVD	$94, R8 // exit_group
	SVC
	BRK

// noSignal is a handler that does nothing; the kernel's vDSO has the restorer.
TEXT ·noSignal(SB),NOSPLIT|NOFRAME,$0
	RET

// func handlerAddrs() (handler, restorer uintptr)
TEXT ·handlerAddrs(SB),NOSPLIT,$0-16
	MOVD	$·noSignal(SB), R0
	MOVD	R0, handler+0(FP)
	MOVD	ZR, restorer+8(FP)
	RET
