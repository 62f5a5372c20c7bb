package node

import (
	"context"

	"github.com/glovebox-dev/glovebox/internal/egress"
)

func (m *machine) NetworkLog(ctx context.Context, since uint64, wait bool) (egress.Page, error) {
	l := m.net.Log()
	if wait {
		if err := l.Wait(ctx, since); err != nil {
			return egress.Page{}, err
		}
	}
	return l.Since(since), nil
}

func (m *machine) NetworkSummary(context.Context) (egress.Summary, error) {
	s := m.net.Log().Summary()
	s.In, s.Out = m.net.Usage()
	return s, nil
}
