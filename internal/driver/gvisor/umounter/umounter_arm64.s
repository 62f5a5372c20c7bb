#include "textflag.h"

// The program: read(3, stack, 1) == 1 && umount2(last argument, MNT_DETACH) == 0.
// Position-independent, no data, no stack frame: it is copied into a file and
// executed there, with SP at argc.
TEXT ·program(SB), NOSPLIT|NOFRAME, $0-0
	MOVD 0(RSP), R9          // argc
	MOVD RSP, R10
	ADD  R9<<3, R10, R10     // argv[argc-1] lies 8*argc above argc
	MOVD 0(R10), R11
	MOVD RSP, R1
	SUB  $128, R1, R1
	MOVD $3, R0
	MOVD $1, R2
	MOVD $63, R8             // read
	SVC
	CMP  $1, R0
	BNE  fail
	MOVD R11, R0
	MOVD $2, R1              // MNT_DETACH
	MOVD $39, R8             // umount2
	SVC
	CBNZ R0, fail
	MOVD $0, R0
	B    exit
fail:
	MOVD $1, R0
exit:
	MOVD $94, R8             // exit_group
	SVC
	BRK

TEXT ·programEnd(SB), NOSPLIT|NOFRAME, $0-0
	RET

// func bounds() (start, end uintptr)
TEXT ·bounds(SB), NOSPLIT, $0-16
	MOVD $·program(SB), R0
	MOVD R0, start+0(FP)
	MOVD $·programEnd(SB), R0
	MOVD R0, end+8(FP)
	RET
