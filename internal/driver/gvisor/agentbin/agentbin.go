// Package agentbin carries the agent: the program that is PID 1 in every
// sandbox, embedded as this folder's agent_linux_<arch>.
//
// `make agent` builds that file and git ignores it. Without it the package
// still compiles, and Agent says what to do.
package agentbin

import (
	"fmt"
	"io/fs"
	"runtime"
)

// Agent returns the agent for this machine's architecture: a static ELF
// executable.
func Agent() ([]byte, error) {
	name := "agent_linux_" + runtime.GOARCH
	b, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("this binary was built without the agent (internal/driver/gvisor/agentbin/%s): build it with `make build`", name)
	}
	return b, nil
}
