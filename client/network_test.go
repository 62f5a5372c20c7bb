package client_test

import (
	"context"
	"errors"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
)

func TestNetworkLog(t *testing.T) {
	c, _ := newClient(t, nil)
	sandbox := newSandbox(t, c)
	page, err := sandbox.NetworkLog(t.Context(), 3)
	if err != nil || len(page.Records) != 1 || page.Records[0].Name != "evil.example" || page.Next != 4 {
		t.Errorf("%+v, %v", page, err)
	}
	sum, err := sandbox.NetworkSummary(t.Context())
	if err != nil || len(sum.Sums) != 2 {
		t.Errorf("%+v, %v", sum, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var events []string
	for r, err := range sandbox.FollowNetworkLog(ctx, 0) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			break
		}
		if events = append(events, r.Event); len(events) == 4 {
			cancel() // nothing follows while the session runs
		}
	}
	if len(events) != 4 || events[0] != api.NetworkDropped {
		t.Errorf("followed %q", events)
	}
	if _, err := sandbox.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range sandbox.FollowNetworkLog(t.Context(), 2) {
		if err != nil {
			t.Error(err)
		}
		n++
	}
	if n != 2 {
		t.Errorf("%d records after the second", n)
	}
}
