package storetest

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

func testFilters(t *testing.T, s store.Store) {
	ctx := t.Context()
	for i, c := range []struct {
		name string
		tags map[string]string
	}{{"ci-b", map[string]string{"env": "ci", "os": "a"}}, {"ci-a", map[string]string{"env": "ci"}}, {"ci_x%", nil}, {"CI-c", map[string]string{"env": "prod"}}} {
		sb, se := made("p", c.name, int64(10+i))
		sb.Tags = c.tags
		if i == 0 {
			sb.Status, sb.StatusUpdatedAt = api.StatusRunning, 99
		}
		if err := s.CreateSandbox(ctx, sb, se, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		q    api.ListSandboxesQuery
		want []string
	}{
		{"all, newest first", api.ListSandboxesQuery{}, []string{"CI-c", "ci_x%", "ci-a", "ci-b"}},
		{"oldest first", api.ListSandboxesQuery{Page: api.Page{SortOrder: api.SortAsc}}, []string{"ci-b", "ci-a", "ci_x%", "CI-c"}},
		{"by name", api.ListSandboxesQuery{Page: api.Page{SortOrder: api.SortAsc}, SortBy: api.SortName}, []string{"CI-c", "ci-a", "ci-b", "ci_x%"}},
		{"by status time", api.ListSandboxesQuery{SortBy: api.SortStatusUpdatedAt}, []string{"ci-b", "CI-c", "ci_x%", "ci-a"}},
		{"prefix, with case and no wildcards", api.ListSandboxesQuery{NamePrefix: "ci_"}, []string{"ci_x%"}},
		{"prefix %", api.ListSandboxesQuery{NamePrefix: "%"}, []string{}},
		{"status", api.ListSandboxesQuery{Status: api.StatusRunning}, []string{"ci-b"}},
		{"tag", api.ListSandboxesQuery{Tags: map[string]string{"env": "ci"}}, []string{"ci-a", "ci-b"}},
		{"two tags", api.ListSandboxesQuery{Tags: map[string]string{"env": "ci", "os": "a"}}, []string{"ci-b"}},
	} {
		if c.q.Limit = 50; c.q.SortBy == "" {
			c.q.SortBy = api.SortCreatedAt
		}
		if c.q.SortOrder == "" {
			c.q.SortOrder = api.SortDesc
		}
		list, next, err := s.ListSandboxes(ctx, "p", c.q)
		want(t, c.name, c.want)(names(list), err)
		if next != "" {
			t.Errorf("%s: next %q", c.name, next)
		}
	}
}

func testCursors(t *testing.T, s store.Store) {
	ctx := t.Context()
	for i := range 3 {
		create(t, s, "p", fmt.Sprint("n", i), int64(i))
	}
	q := api.ListSandboxesQuery{Page: api.Page{Limit: 1, SortOrder: api.SortDesc}, SortBy: api.SortCreatedAt}
	_, next, err := s.ListSandboxes(ctx, "p", q)
	if err != nil || next == "" {
		t.Fatal(next, err)
	}
	for _, bad := range []string{"x", "!!", "e30", next + "A", next[1:]} {
		q.Cursor = bad
		_, _, err := s.ListSandboxes(ctx, "p", q)
		wantErr(t, bad, store.ErrCursor, err)
	}
	q.Cursor, q.SortBy = next, api.SortName
	_, _, err = s.ListSandboxes(ctx, "p", q)
	wantErr(t, "other sort field", store.ErrCursor, err)
	q.SortBy, q.SortOrder = api.SortCreatedAt, api.SortAsc
	_, _, err = s.ListSandboxes(ctx, "p", q)
	wantErr(t, "other order", store.ErrCursor, err)
}

// testPages: whatever is added between pages, what was there at the start
// comes exactly once and in order.
func testPages(t *testing.T, s store.Store) {
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		project := fmt.Sprint("p", n)
		add := func(kind string) string {
			sb, se := made(project, fmt.Sprintf("%s-%s", kind, api.NewID("")), rapid.Int64Range(0, 5).Draw(r, "createdAt"))
			sb.StatusUpdatedAt = rapid.Int64Range(0, 5).Draw(r, "statusUpdatedAt")
			if err := s.CreateSandbox(t.Context(), sb, se, nil); err != nil {
				r.Fatal(err)
			}
			return sb.Name
		}
		var first []string
		for range rapid.IntRange(0, 12).Draw(r, "items") {
			first = append(first, add("first"))
		}
		q := api.ListSandboxesQuery{
			Page:   api.Page{Limit: rapid.IntRange(1, 5).Draw(r, "limit"), SortOrder: rapid.SampledFrom([]string{api.SortAsc, api.SortDesc}).Draw(r, "order")},
			SortBy: rapid.SampledFrom([]string{api.SortCreatedAt, api.SortName, api.SortStatusUpdatedAt}).Draw(r, "by"),
		}
		var got []string
		for {
			list, next, err := s.ListSandboxes(t.Context(), project, q)
			if err != nil {
				r.Fatal(err)
			}
			if len(list) > q.Limit || next != "" && len(list) < q.Limit {
				r.Fatalf("page of %d, limit %d, next %q", len(list), q.Limit, next)
			}
			got = append(got, names(list)...)
			if next == "" {
				break
			}
			q.Cursor = next
			if rapid.Bool().Draw(r, "insert") {
				add("later")
			}
		}
		if len(slices.Compact(sorted(got))) != len(got) {
			r.Fatalf("repeated: %v", got)
		}
		old := slices.DeleteFunc(sorted(got), func(n string) bool { return n[:5] == "later" })
		if !slices.Equal(old, sorted(first)) {
			r.Fatalf("got %v, want %v", old, sorted(first))
		}
	})
}
