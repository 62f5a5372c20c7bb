package gvisor

import (
	"os"
	"os/exec"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestLeaveCPUID tries it in a process of its own, which the filter does not
// leave again.
func TestLeaveCPUID(t *testing.T) {
	const childVar = "GLOVEBOX_TEST_CPUID"
	if os.Getenv(childVar) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestLeaveCPUID$")
		cmd.Env = append(os.Environ(), childVar+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := leaveCPUID(); err != nil {
		t.Fatal(err)
	}
	// Instructions without faults can always be asked for, so this can only
	// fail by the filter.
	if _, _, errno := unix.Syscall(unix.SYS_ARCH_PRCTL, archSetCPUID, 1, 0); errno != unix.EPERM {
		t.Errorf("arch_prctl(ARCH_SET_CPUID): %v, want %v", errno, unix.EPERM)
	}
	const archGetFS = 0x1003
	var fs uintptr
	if _, _, errno := unix.Syscall(unix.SYS_ARCH_PRCTL, archGetFS, uintptr(unsafe.Pointer(&fs)), 0); errno != 0 || fs == 0 {
		t.Errorf("arch_prctl(ARCH_GET_FS): %v, %#x", errno, fs)
	}
}
