package cli

import (
	"bytes"
	"os"
	"testing"
)

func TestManualIsUpToDate(t *testing.T) {
	var want bytes.Buffer
	must(t, Manual(&want))
	got, err := os.ReadFile("../../docs/cli.md")
	must(t, err)
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/cli.md differs from the commands: run make docs")
	}
}
