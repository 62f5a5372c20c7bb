package store

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/glovebox-dev/glovebox/api"
)

// cursor is the place in a list after which the next page begins: the sort
// value and id of the last item. Items that come or go elsewhere do not
// shift it.
type cursor struct {
	By    string `json:"b"`
	Order string `json:"o"`
	Value any    `json:"v"` // string or integer, as the sort column
	ID    string `json:"i"`
}

func (c cursor) String() string {
	b, err := json.Marshal(c)
	if err != nil { // strings and integers always encode
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseCursor reads one that a list with the same sort order made.
func parseCursor(s, by, order string) (cursor, error) {
	var c cursor
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || json.Unmarshal(b, &c) != nil || c.By != by || c.Order != order || c.ID == "" {
		return c, ErrCursor
	}
	switch v := c.Value.(type) {
	case string:
		if by != api.SortName {
			return c, ErrCursor
		}
	case float64: // exact: milliseconds stay below 2^53
		if by == api.SortName {
			return c, ErrCursor
		}
		c.Value = int64(v)
	default:
		return c, ErrCursor
	}
	return c, nil
}

// listQuery grows a SELECT with conditions.
type listQuery struct {
	where []string
	args  []any
}

func (q *listQuery) and(cond string, args ...any) {
	q.where = append(q.where, cond)
	q.args = append(q.args, args...)
}

// page ends the query: after p.Cursor, by (column, id), one item more than
// asked for, so that it is known whether a page follows.
func (q *listQuery) page(from, by, column, id string, p api.Page) (string, []any, error) {
	compare := ">"
	if p.SortOrder == api.SortDesc {
		compare = "<"
	}
	if p.Cursor != "" {
		c, err := parseCursor(p.Cursor, by, p.SortOrder)
		if err != nil {
			return "", nil, err
		}
		q.and(fmt.Sprintf("(%s, %s) %s (?, ?)", column, id, compare), c.Value, c.ID)
	}
	text := fmt.Sprintf("%s WHERE %s ORDER BY %s %[4]s, %[5]s %[4]s LIMIT %[6]d",
		from, strings.Join(q.where, " AND "), column, p.SortOrder, id, p.Limit+1)
	return text, q.args, nil
}

// cut drops the item beyond the page and makes the cursor that leads to it.
func cut[T any](list []T, by string, p api.Page, at func(T) (value any, id string)) ([]T, string) {
	if len(list) <= p.Limit {
		return list, ""
	}
	list = list[:p.Limit]
	value, id := at(list[len(list)-1])
	return list, cursor{By: by, Order: p.SortOrder, Value: value, ID: id}.String()
}

// likePrefix matches texts that begin with prefix, byte by byte.
func likePrefix(column, prefix string) (string, []any) {
	return fmt.Sprintf("substr(%s, 1, ?) = ?", column), []any{len(prefix), prefix}
}

func (s *sqliteStore) ListSandboxes(ctx context.Context, project string, q api.ListSandboxesQuery) ([]Sandbox, string, error) {
	var lq listQuery
	lq.and("s.project = ?", project)
	if q.NamePrefix != "" {
		cond, args := likePrefix("s.name", q.NamePrefix)
		lq.and(cond, args...)
	}
	if q.Status != "" {
		lq.and("s.status = ?", string(q.Status))
	}
	for k, v := range q.Tags {
		lq.and("EXISTS (SELECT 1 FROM tags t WHERE t.sandbox = s.id AND t.key = ? AND t.value = ?)", k, v)
	}
	column, at := "s.created_at", func(sb Sandbox) (any, string) { return sb.CreatedAt, sb.ID }
	switch q.SortBy {
	case api.SortName:
		column, at = "s.name", func(sb Sandbox) (any, string) { return sb.Name, sb.ID }
	case api.SortStatusUpdatedAt:
		column, at = "s.status_updated_at", func(sb Sandbox) (any, string) { return sb.StatusUpdatedAt, sb.ID }
	}
	text, args, err := lq.page("SELECT "+sandboxColumns+" FROM sandboxes s", q.SortBy, column, "s.id", q.Page)
	if err != nil {
		return nil, "", fmt.Errorf("list sandboxes: %w", err)
	}
	list, err := query(ctx, s.read, scanSandbox, text, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list sandboxes of project %q: %w", project, err)
	}
	list, next := cut(list, q.SortBy, q.Page, at)
	return list, next, nil
}

func (s *sqliteStore) ListSessions(ctx context.Context, project string, q api.ListSessionsQuery) ([]Session, string, error) {
	var lq listQuery
	lq.and("e.project = ?", project)
	if q.Name != "" {
		lq.and("e.sandbox_name = ?", q.Name)
	}
	text, args, err := lq.page("SELECT "+sessionColumns+" FROM sessions e", api.SortCreatedAt, "e.created_at", "e.id", q.Page)
	if err != nil {
		return nil, "", fmt.Errorf("list sessions: %w", err)
	}
	list, err := query(ctx, s.read, scanSession, text, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list sessions of project %q: %w", project, err)
	}
	list, next := cut(list, api.SortCreatedAt, q.Page, func(se Session) (any, string) { return se.CreatedAt, se.ID })
	return list, next, nil
}
