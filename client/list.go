package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/glovebox-dev/glovebox/api"
)

// ListOptions chooses and orders what ListSandboxes returns. The zero value
// lists all, newest first.
type ListOptions struct {
	NamePrefix string
	Status     api.SessionStatus
	Tag        string // "key:value"
	SortBy     string // createdAt, name or statusUpdatedAt
	SortOrder  string // asc or desc
	PageSize   int    // 1–50; how many are fetched at a time
}

func (o ListOptions) values() url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("namePrefix", o.NamePrefix)
	set("status", string(o.Status))
	set("tags", o.Tag)
	set("sortBy", o.SortBy)
	set("sortOrder", o.SortOrder)
	q.Set("limit", "50")
	if o.PageSize > 0 {
		q.Set("limit", strconv.Itoa(o.PageSize))
	}
	return q
}

// ListSandboxes iterates over the project's sandboxes, page by page as they
// are asked for. An error ends the iteration.
func (c *Client) ListSandboxes(ctx context.Context, o ListOptions) iter.Seq2[api.Sandbox, error] {
	return pages(ctx, c, sandboxesPath, o.values(), "cursor", "list sandboxes", func(p api.SandboxesPage) ([]api.Sandbox, api.Pagination) {
		return p.Sandboxes, p.Pagination
	})
}

// ListSessions iterates over the sessions of the sandbox of that name, newest
// first; of all sandboxes where the name is empty.
func (c *Client) ListSessions(ctx context.Context, name string) iter.Seq2[api.Session, error] {
	q := url.Values{"limit": {"50"}}
	if name != "" {
		q.Set("name", name)
	}
	path := []string{"v2", "sandboxes", "sessions"}
	return pages(ctx, c, path, q, "cursor", "list sessions", func(p api.SessionsPage) ([]api.Session, api.Pagination) {
		return p.Sessions, p.Pagination
	})
}

// pages follows the cursors of a list, each in the query parameter of that
// name.
func pages[Page, Item any](ctx context.Context, c *Client, path []string, q url.Values, cursor, what string, split func(Page) ([]Item, api.Pagination)) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		query := url.Values{}
		for k, v := range q {
			query[k] = v
		}
		for {
			var page Page
			err := c.call(ctx, request{method: http.MethodGet, path: path, query: query, repeatable: true}, &page)
			if err != nil {
				var none Item
				yield(none, wrap(err, "%s", what))
				return
			}
			items, pagination := split(page)
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if pagination.Next == nil {
				return
			}
			query.Set(cursor, *pagination.Next)
		}
	}
}
