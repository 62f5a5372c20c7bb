package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/glovebox-dev/glovebox/api"
)

// NetworkLog returns what was decided about the traffic of the sandbox's
// current session, after the record of number since (0 for all that is kept).
// It works after the session's end as long as the server keeps the log.
func (s *Sandbox) NetworkLog(ctx context.Context, since int64) (*api.NetworkLog, error) {
	var out api.NetworkLog
	r := request{method: http.MethodGet, path: sessionPath(s.Session().ID, "network-log"), query: sinceQuery(since), repeatable: true}
	if err := s.c.call(ctx, r, &out); err != nil {
		return nil, wrap(err, "network log of sandbox %s", s.Name())
	}
	return &out, nil
}

// FollowNetworkLog iterates over the same records and those that come, until
// the session's end. A record of the event api.NetworkDropped tells of records
// that were gone before they could be sent. An error ends the iteration; go on
// with the Seq of the last record as since.
func (s *Sandbox) FollowNetworkLog(ctx context.Context, since int64) iter.Seq2[api.NetworkRecord, error] {
	return func(yield func(api.NetworkRecord, error) bool) {
		query := sinceQuery(since)
		query.Set("follow", "true")
		r := request{method: http.MethodGet, path: sessionPath(s.Session().ID, "network-log"), query: query, repeatable: true}
		failed := func(err error) { yield(api.NetworkRecord{}, wrap(err, "network log of sandbox %s", s.Name())) }
		resp, err := s.c.do(ctx, r)
		if err != nil {
			failed(err)
			return
		}
		stream, err := newLines(resp)
		if err != nil {
			failed(err)
			return
		}
		defer stream.close()
		for {
			record, err := nextRecord(stream)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				failed(err)
				return
			}
			if !yield(record, nil) {
				return
			}
		}
	}
}

func nextRecord(l *lines) (api.NetworkRecord, error) {
	text, err := l.text()
	if err != nil {
		return api.NetworkRecord{}, err
	}
	var item struct {
		api.NetworkRecord
		Stream string    `json:"stream"`
		Data   api.Error `json:"data"`
	}
	if err := json.Unmarshal(text, &item); err != nil {
		return api.NetworkRecord{}, fmt.Errorf("%w (unreadable line: %w)", errCut, err)
	}
	if item.Stream == api.StreamError {
		return api.NetworkRecord{}, &item.Data
	}
	return item.NetworkRecord, nil
}

// NetworkSummary returns what the current session has done in the network, by
// name.
func (s *Sandbox) NetworkSummary(ctx context.Context) (*api.NetworkSummary, error) {
	var out api.NetworkSummary
	r := request{method: http.MethodGet, path: sessionPath(s.Session().ID, "network-summary"), repeatable: true}
	if err := s.c.call(ctx, r, &out); err != nil {
		return nil, wrap(err, "network summary of sandbox %s", s.Name())
	}
	return &out, nil
}

func sinceQuery(since int64) url.Values {
	return url.Values{"since": {strconv.FormatInt(since, 10)}}
}
