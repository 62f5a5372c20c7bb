package api_test

import (
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
)

func TestValidateNameRefusesPathsOfTheAPI(t *testing.T) {
	for _, name := range []string{"sessions", "snapshots", "drives"} {
		if err := api.ValidateName("name", name); err == nil || !strings.Contains(err.Error(), "field name") {
			t.Errorf("name %q: %v, want an error that names the field", name, err)
		}
	}
	if err := api.ValidateName("name", "sessions-1"); err != nil {
		t.Error(err)
	}
}
