package gvisor

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentryhook"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentryseccomp"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/umounter"
)

const (
	// kernelName is the name (argv[0]) by which a process knows that it is
	// to be a sandbox kernel.
	kernelName = "glovebox-sandbox"
	// joinVar lists descriptors: files to write "0" to, to join the
	// machine's control groups.
	joinVar = "GLOVEBOX_JOIN"
	// Descriptors that every kernel gets: its own executable, the end of a
	// pipe to be closed when layers can be mounted, and that of one whose
	// other end is open for as long as the server lives.
	exeFD   = 3
	armedFD = 4
	leaseFD = 5
	// exitJoin is the exit status when that fails.
	exitJoin = 125
	// stubOOMScore and kernelOOMScore are the oom_score_adj of the stub
	// processes, in which guest code runs, and of the kernel. Out of memory, a
	// machine is to lose the guest's largest process rather than its kernel;
	// and the host, out of memory itself, a sandbox rather than the server.
	stubOOMScore   = "900"
	kernelOOMScore = "200"
)

// Main is to be the first call in the main function of every binary that
// drives machines, before flags are read and files are opened. In a process
// that was started as a sandbox kernel it is that kernel and does not return
// before its end; anywhere else it returns false at once.
func Main() bool {
	if os.Args[0] != kernelName {
		return false
	}
	// First of all, so that every page and every thread is counted, and all
	// stub processes are born inside.
	if err := joinGroups(os.Getenv(joinVar)); err != nil {
		fmt.Fprintln(os.Stderr, "join control groups:", err)
		os.Exit(exitJoin)
	}
	// The stubs inherit it, and the driver, which may, lowers the kernel's
	// again when the first of them is there.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(stubOOMScore), 0)
	os.Clearenv()
	_ = unix.Close(exeFD) // it served its purpose
	unix.CloseOnExec(armedFD)
	unix.CloseOnExec(leaseFD)
	sentryhook.Hold(os.NewFile(leaseFD, "lease"))
	if err := sentryhook.Arm(os.NewFile(armedFD, "armed")); err != nil {
		fmt.Fprintln(os.Stderr, "arm the layer hook:", err)
		os.Exit(1)
	}
	if err := leaveCPUID(); err != nil {
		fmt.Fprintln(os.Stderr, "leave CPUID to the processor:", err)
		os.Exit(1)
	}
	sentryseccomp.Install()
	// What gVisor executes as ExePath in this set-up is the umount helper
	// alone. By descriptor, since it does so in its new root.
	helper, err := umounter.Open()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	specutils.ExePath = umounter.Path(helper)
	cli.Run(nil, map[util.SubCommand]string{new(sentrycmd.Boot): ""}, nil)
	return true
}

func joinGroups(fds string) error {
	for s := range strings.FieldsSeq(fds) {
		fd, err := strconv.Atoi(s)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "cgroup.procs")
		_, err = f.WriteString("0")
		f.Close() // nothing is buffered; the kernel must not keep it
		if err != nil {
			return err
		}
	}
	return nil
}
