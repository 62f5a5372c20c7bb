#include "textflag.h"

// The program: read(3, stack, 1) == 1 && umount2(last argument, MNT_DETACH) == 0.
// Position-independent, no data, no stack frame: it is copied into a file and
// executed there, with SP at argc.
TEXT ·program(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ 0(SP), BX          // argc
	MOVQ (SP)(BX*8), R12    // argv[argc-1] lies 8*argc above argc
	LEAQ -128(SP), SI
	MOVQ $3, DI
	MOVQ $1, DX
	MOVQ $0, AX             // read
	SYSCALL
	CMPQ AX, $1
	JNE  fail
	MOVQ R12, DI
	MOVQ $2, SI             // MNT_DETACH
	MOVQ $166, AX           // umount2
	SYSCALL
	TESTQ AX, AX
	JNE  fail
	MOVQ $0, DI
	JMP  exit
fail:
	MOVQ $1, DI
exit:
	MOVQ $231, AX           // exit_group
	SYSCALL
	INT  $3

TEXT ·programEnd(SB), NOSPLIT|NOFRAME, $0-0
	RET

// func bounds() (start, end uintptr)
TEXT ·bounds(SB), NOSPLIT, $0-16
	LEAQ ·program(SB), AX
	MOVQ AX, start+0(FP)
	LEAQ ·programEnd(SB), AX
	MOVQ AX, end+8(FP)
	RET
