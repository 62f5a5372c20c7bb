package sentryseccomp

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"gvisor.dev/gvisor/runsc/boot/filter"
)

// TestProgramsMatchPinnedVersion fails when gVisor was changed and `go
// generate` was not run after it.
func TestProgramsMatchPinnedVersion(t *testing.T) {
	want, err := Compile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, programs); diff != "" {
		t.Errorf("the programs are not those of the pinned gVisor; run `go generate ./internal/driver/gvisor/sentryseccomp` on each architecture:\n%.2000s", diff)
	}
}

func TestInstall(t *testing.T) {
	Install()
	for _, p := range programs {
		if _, ok := filter.GetPrecompiled(p.Name); !ok {
			t.Errorf("not installed: %s", p.Name)
		}
	}
}
