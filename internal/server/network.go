package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/glovebox-dev/glovebox/api"
)

func (c *call) networkLog() error {
	since, err := api.ParseNetworkLog(c.r.URL.Query())
	if err != nil {
		return err
	}
	follow, err := c.boolQuery("follow")
	if err != nil {
		return err
	}
	p, id, err := c.session()
	if err != nil {
		return err
	}
	page, err := p.NetworkLog(c.r.Context(), id, since, false)
	if err != nil || !follow {
		return c.ok(page, err)
	}
	ctx, cancel := c.streamContext()
	defer cancel()
	s := c.newStream()
	if err := s.begin(); err != nil || c.r.Method != http.MethodGet {
		return nil
	}
	if err := s.followNetwork(ctx, p, page); err != nil && c.r.Context().Err() == nil {
		_ = s.end(waitError(ctx, err))
	}
	return nil
}

// followNetwork sends page and what comes after it, until the session's end.
func (s *stream) followNetwork(ctx context.Context, p Project, page *api.NetworkLog) error {
	for {
		if page.Dropped > 0 {
			if err := s.send(api.NetworkRecord{Event: api.NetworkDropped, Dropped: page.Dropped}); err != nil {
				return err
			}
		}
		for _, r := range page.Records {
			if err := s.send(r); err != nil {
				return err
			}
		}
		if page.Ended {
			return nil
		}
		next, err := s.nextPage(ctx, p, page)
		if err != nil {
			return err
		}
		page = next
	}
}

// nextPage waits for more, and sends a byte now and then meanwhile.
func (s *stream) nextPage(ctx context.Context, p Project, page *api.NetworkLog) (*api.NetworkLog, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, keepAlive)
		next, err := p.NetworkLog(wait, page.SessionID, page.Next, true)
		cancel()
		if err == nil || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return next, err
		}
		if err := s.flush([]byte("\n")); err != nil {
			return nil, err
		}
	}
}

func (c *call) networkSummary() error {
	p, id, err := c.session()
	if err != nil {
		return err
	}
	summary, err := p.NetworkSummary(c.r.Context(), id)
	return c.ok(summary, err)
}
