package netstack

import (
	"encoding/json"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/egress"
)

func policy(t testing.TB, js string) egress.Policy {
	t.Helper()
	var in api.NetworkPolicy
	if err := json.Unmarshal([]byte(js), &in); err != nil {
		t.Fatal(err)
	}
	p, err := egress.Parse(in)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
