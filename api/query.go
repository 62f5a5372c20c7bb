package api

import (
	"net/url"
	"strconv"
	"strings"
)

// Sort orders and fields of lists.
const (
	SortAsc             = "asc"
	SortDesc            = "desc"
	SortCreatedAt       = "createdAt"
	SortName            = "name"
	SortStatusUpdatedAt = "statusUpdatedAt"
	SortUpdatedAt       = "updatedAt"
)

// Page is the part of a list call that all lists share.
type Page struct {
	Limit     int    // 1–50
	Cursor    string // of an earlier page, "" for the first
	SortOrder string // SortAsc or SortDesc
}

// ListSandboxesQuery is GET /v2/sandboxes.
type ListSandboxesQuery struct {
	Page
	SortBy     string // SortCreatedAt, SortName or SortStatusUpdatedAt
	NamePrefix string
	Status     SessionStatus     // "" for all
	Tags       map[string]string // all of them must be there
}

// ListSessionsQuery is GET /v2/sandboxes/sessions, newest first by default.
type ListSessionsQuery struct {
	Page
	Name string // of the sandbox; "" for all of the project
}

// ListSnapshotsQuery is GET /v2/sandboxes/snapshots, newest first by default.
type ListSnapshotsQuery struct {
	Page
	Name string // of the sandbox; "" for all of the project
}

// ListDrivesQuery is GET /v2/sandboxes/drives, newest first by default.
type ListDrivesQuery struct {
	Page
	SortBy     string // SortCreatedAt, SortUpdatedAt or SortName
	NamePrefix string
}

// SnapshotTreeQuery is GET /v2/sandboxes/snapshots/tree. SortDesc walks the
// ancestors of the snapshot, SortAsc its descendants.
type SnapshotTreeQuery struct {
	SnapshotID string
	Limit      int // 1–50
	SortOrder  string
}

// ParseListSandboxes reads a query string.
func ParseListSandboxes(q url.Values) (ListSandboxesQuery, error) {
	page, err := parsePage(q)
	if err != nil {
		return ListSandboxesQuery{}, err
	}
	out := ListSandboxesQuery{Page: page, SortBy: q.Get("sortBy"), NamePrefix: q.Get("namePrefix"), Status: SessionStatus(q.Get("status"))}
	switch out.SortBy {
	case "":
		out.SortBy = SortCreatedAt
	case SortCreatedAt, SortName, SortStatusUpdatedAt:
	default:
		return out, BadRequest("query sortBy: %q is unknown; use createdAt, name or statusUpdatedAt", clip(out.SortBy))
	}
	if out.Status != "" && !out.Status.Valid() {
		return out, BadRequest("query status: %q is unknown; use pending, running, stopping, stopped, failed, aborted or snapshotting", clip(string(out.Status)))
	}
	for _, tag := range q["tags"] {
		key, value, ok := strings.Cut(tag, ":")
		if !ok || key == "" {
			return out, BadRequest("query tags: %q must be key:value", clip(tag))
		}
		if out.Tags == nil {
			out.Tags = map[string]string{}
		}
		if old, twice := out.Tags[key]; twice && old != value {
			return out, BadRequest("query tags: %q is there twice with different values", clip(key))
		}
		out.Tags[key] = value
	}
	return out, nil
}

// ParseListSessions reads a query string.
func ParseListSessions(q url.Values) (ListSessionsQuery, error) {
	page, err := parsePage(q)
	return ListSessionsQuery{Page: page, Name: q.Get("name")}, err
}

// ParseListSnapshots reads a query string.
func ParseListSnapshots(q url.Values) (ListSnapshotsQuery, error) {
	page, err := parsePage(q)
	return ListSnapshotsQuery{Page: page, Name: q.Get("name")}, err
}

// ParseListDrives reads a query string.
func ParseListDrives(q url.Values) (ListDrivesQuery, error) {
	page, err := parsePage(q)
	out := ListDrivesQuery{Page: page, SortBy: q.Get("sortBy"), NamePrefix: q.Get("namePrefix")}
	switch out.SortBy {
	case "":
		out.SortBy = SortCreatedAt
	case SortCreatedAt, SortUpdatedAt, SortName:
	default:
		if err == nil {
			err = BadRequest("query sortBy: %q is unknown; use createdAt, updatedAt or name", clip(out.SortBy))
		}
	}
	return out, err
}

// ParseSnapshotTree reads a query string.
func ParseSnapshotTree(q url.Values) (SnapshotTreeQuery, error) {
	page, err := parsePage(q)
	if err == nil && q.Get("snapshotId") == "" {
		err = BadRequest("query snapshotId: is missing; name the snapshot that the walk begins at")
	}
	return SnapshotTreeQuery{SnapshotID: q.Get("snapshotId"), Limit: page.Limit, SortOrder: page.SortOrder}, err
}

func parsePage(q url.Values) (Page, error) {
	p := Page{Limit: DefaultListLimit, Cursor: q.Get("cursor"), SortOrder: SortDesc}
	if q.Has("limit") {
		n, err := strconv.Atoi(q.Get("limit"))
		if err != nil || n < 1 || n > MaxListLimit {
			return p, BadRequest("query limit: %q must be an integer from 1 to %d", clip(q.Get("limit")), MaxListLimit)
		}
		p.Limit = n
	}
	if q.Has("sortOrder") {
		p.SortOrder = q.Get("sortOrder")
		if p.SortOrder != SortAsc && p.SortOrder != SortDesc {
			return p, BadRequest("query sortOrder: %q is unknown; use asc or desc", clip(p.SortOrder))
		}
	}
	return p, nil
}
