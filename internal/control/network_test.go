package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/egress"
)

func (m *fakeMachine) NetworkLog(ctx context.Context, since uint64, wait bool) (egress.Page, error) {
	if wait {
		if err := m.net.Log().Wait(ctx, since); err != nil {
			return egress.Page{}, err
		}
	}
	return m.net.Log().Since(since), nil
}

func (m *fakeMachine) NetworkSummary(context.Context) (egress.Summary, error) {
	s := m.net.Log().Summary()
	s.In, s.Out = 11, 22
	return s, nil
}

func TestNetworkLog(t *testing.T) {
	r := newRig(t)
	se := r.create(t, api.CreateSandboxRequest{Name: "a"}).Session
	j := r.node.last().net
	j.Resolve("bad.com", "A")
	addr := netip.MustParseAddrPort("203.0.113.1:443")
	page, err := r.NetworkLog(t.Context(), se.ID, 0, true)
	if err != nil || len(page.Records) != 1 || page.Records[0].Name != "bad.com" || page.Records[0].Verdict != api.VerdictDeny || page.Next != 1 || page.Ended {
		t.Fatalf("%+v, %v", page, err)
	}
	waited := make(chan *api.NetworkLog, 1)
	go func() {
		page, err := r.NetworkLog(context.Background(), se.ID, page.Next, true)
		if err != nil {
			t.Error(err)
		}
		waited <- page
	}()
	j.SetPolicy(egress.AllowAll())
	v := j.Connect(egress.TCP, addr)
	if page := <-waited; len(page.Records) != 1 || page.Records[0].Port != 443 || page.Records[0].Address != "203.0.113.1" {
		t.Errorf("after a wait: %+v", page)
	}
	meter := j.Meter(egress.TCP, addr, v)
	meter.Count(3, 4)
	meter.End("")
	stopped := r.stop(t, se.ID)
	if got := stopped.Session.NetworkTransfer; got == nil || got.Ingress != 11 || got.Egress != 22 {
		t.Errorf("transfer %+v", got)
	}
	page, err = r.NetworkLog(t.Context(), se.ID, 2, true)
	if err != nil || !page.Ended || len(page.Records) != 1 || page.Next != 3 || page.Dropped != 0 {
		t.Fatalf("after the end: %+v, %v", page, err)
	}
	if end := page.Records[0]; end.Event != api.NetworkEnd || end.Of != 2 || *end.Transfer != (api.NetworkTransfer{Ingress: 3, Egress: 4}) {
		t.Errorf("record of the end: %+v", end)
	}
	sum, err := r.NetworkSummary(t.Context(), se.ID)
	if err != nil || len(sum.Sums) != 2 || sum.Sums[0].Address != "203.0.113.1" || sum.Sums[1].Name != "bad.com" || sum.Transfer.Egress != 22 {
		t.Errorf("%+v, %v", sum, err)
	}
	var e *api.Error
	if _, err := r.NetworkLog(t.Context(), "se_unknown", 0, false); !errors.As(err, &e) || e.Code != api.CodeNotFound {
		t.Error(err)
	}
}

// TestEndedNetworksAreBounded: the logs of old sessions give way, and those
// that are left answer as a living log does.
func TestEndedNetworksAreBounded(t *testing.T) {
	var n networks
	j := egress.NewJudge(egress.Options{})
	for i := range 2000 {
		j.Resolve(fmt.Sprintf("n%d", i%10), "A")
	}
	l := j.Log()
	e := endedNetwork{l.Since(0), l.Summary()}
	const many = 200
	for i := range many {
		n.keep(fmt.Sprint(i), e)
	}
	if n.size > keptRecords || len(n.byID) != len(n.order) || len(n.byID) < 20 {
		t.Errorf("%d records of %d sessions", n.size, len(n.byID))
	}
	if _, ok := n.get("0"); ok {
		t.Error("the oldest is still there")
	}
	got, ok := n.get(fmt.Sprint(many - 1))
	if !ok {
		t.Fatal("the newest is gone")
	}
	for _, since := range []uint64{0, 1, 975, 976, 977, 1999, 2000, 2001} {
		want, have := l.Since(since), got.since(since)
		if len(have.Records) != len(want.Records) || have.Dropped != want.Dropped || have.Last != want.Last ||
			len(have.Records) > 0 && have.Records[0].Seq != want.Records[0].Seq {
			t.Errorf("since %d: %d records and %d dropped, want %d and %d", since, len(have.Records), have.Dropped, len(want.Records), want.Dropped)
		}
	}
}
