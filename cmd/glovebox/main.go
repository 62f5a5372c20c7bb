// Command glovebox runs untrusted code in sandboxes: a server, a command line
// for it, and a way to run one command without a server. The same binary is
// the sandbox's kernel, which it executes itself as.
package main

import (
	"fmt"
	"os"

	"github.com/glovebox-dev/glovebox/internal/cli"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
)

func main() {
	if builtWithCgo {
		// With cgo the kernel cannot drop its capabilities on all threads.
		fmt.Fprintln(os.Stderr, "glovebox: this binary was built with cgo, and no sandbox would start\ntry: make build, or go build with CGO_ENABLED=0")
		os.Exit(1)
	}
	// Before anything else: a process that is to be a sandbox's kernel must
	// not have read flags, opened files or started goroutines.
	if gvisor.Main() {
		return
	}
	os.Exit(cli.Main(os.Args[1:]))
}
