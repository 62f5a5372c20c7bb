package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

var snapshotsPath = []string{"v2", "sandboxes", "snapshots"}

func snapshotPath(id string) []string { return []string{"v2", "sandboxes", "snapshots", id} }

// SnapshotOptions of Sandbox.Snapshot.
type SnapshotOptions struct {
	// Expiration after the last use, in whole milliseconds; 0 means never.
	// Nil: what the sandbox says, or 30 days.
	Expiration *time.Duration
}

// Snapshot keeps the sandbox's disk and ends its session. A persistent sandbox
// goes on from there with the next call that needs a session.
func (s *Sandbox) Snapshot(ctx context.Context, o SnapshotOptions) (api.Snapshot, error) {
	var req api.CreateSnapshotRequest
	if o.Expiration != nil {
		req.Expiration = api.IntOf(o.Expiration.Milliseconds())
	}
	var out api.CreateSnapshotResponse
	err := s.withSession(ctx, func(session api.Session) error {
		r := request{method: http.MethodPost, path: sessionPath(session.ID, "snapshot"), json: req, key: true}
		return s.c.call(ctx, r, &out)
	})
	if err == nil {
		s.setSession(out.Session)
	}
	return out.Snapshot, wrap(err, "take a snapshot of sandbox %s", s.Name())
}

// GetSnapshot tells of a snapshot, also of one that was deleted.
func (c *Client) GetSnapshot(ctx context.Context, id string) (api.Snapshot, error) {
	return c.oneSnapshot(ctx, http.MethodGet, id, "get snapshot")
}

// DeleteSnapshot makes a snapshot unusable and frees its disk space. What was
// made from it stays. Deleting it again is no error.
func (c *Client) DeleteSnapshot(ctx context.Context, id string) (api.Snapshot, error) {
	return c.oneSnapshot(ctx, http.MethodDelete, id, "delete snapshot")
}

// DiffSnapshots tells what is different in the snapshot with from the snapshot
// id.
func (c *Client) DiffSnapshots(ctx context.Context, id, with string) (api.SnapshotDiff, error) {
	var out api.SnapshotDiff
	if id == "" || with == "" {
		return out, errors.New("compare snapshots: an id is empty")
	}
	r := request{method: http.MethodGet, path: append(snapshotPath(id), "diff"), query: url.Values{"with": {with}}, repeatable: true}
	return out, wrap(c.call(ctx, r, &out), "compare snapshots %s and %s", id, with)
}

func (c *Client) oneSnapshot(ctx context.Context, method, id, what string) (api.Snapshot, error) {
	var out api.SnapshotResponse
	if id == "" {
		return out.Snapshot, errors.New(what + ": the id is empty")
	}
	err := c.call(ctx, request{method: method, path: snapshotPath(id), repeatable: true}, &out)
	return out.Snapshot, wrap(err, "%s %s", what, id)
}

// ListSnapshots iterates over the snapshots of the sandbox of that name, newest
// first and deleted ones included; of all sandboxes where the name is empty.
func (c *Client) ListSnapshots(ctx context.Context, name string) iter.Seq2[api.Snapshot, error] {
	q := url.Values{"limit": {"50"}}
	if name != "" {
		q.Set("name", name)
	}
	return pages(ctx, c, snapshotsPath, q, "cursor", "list snapshots", func(p api.SnapshotsPage) ([]api.Snapshot, api.Pagination) {
		return p.Snapshots, p.Pagination
	})
}

// SnapshotNode tells of a snapshot and those that have the same parent.
func (c *Client) SnapshotNode(ctx context.Context, id string) (api.SnapshotNode, error) {
	var out api.SnapshotTree
	r := request{method: http.MethodGet, path: snapshotPath("tree"), query: url.Values{"limit": {"1"}, "snapshotId": {id}}, repeatable: true}
	err := c.call(ctx, r, &out)
	if err == nil && out.Anchor == nil {
		err = errors.New("the answer has no anchor")
	}
	if err != nil {
		return api.SnapshotNode{}, wrap(err, "get snapshot %s", id)
	}
	return *out.Anchor, nil
}

// SnapshotAncestors iterates from a snapshot's parent to the first of all.
func (c *Client) SnapshotAncestors(ctx context.Context, id string) iter.Seq2[api.SnapshotNode, error] {
	return c.tree(ctx, id, api.SortDesc)
}

// SnapshotDescendants iterates over what was made from a snapshot, along the
// latest child each; the others are its siblings.
func (c *Client) SnapshotDescendants(ctx context.Context, id string) iter.Seq2[api.SnapshotNode, error] {
	return c.tree(ctx, id, api.SortAsc)
}

func (c *Client) tree(ctx context.Context, id, order string) iter.Seq2[api.SnapshotNode, error] {
	q := url.Values{"limit": {"50"}, "sortOrder": {order}, "snapshotId": {id}}
	return pages(ctx, c, snapshotPath("tree"), q, "snapshotId", "walk from snapshot "+id, func(p api.SnapshotTree) ([]api.SnapshotNode, api.Pagination) {
		return p.Snapshots, p.Pagination
	})
}

// ForkSandbox makes a sandbox with a copy of the disk of the one of that name,
// as it is now, and with its settings; req replaces those that it holds. The
// source goes on.
func (c *Client) ForkSandbox(ctx context.Context, source string, req api.ForkSandboxRequest) (*Sandbox, error) {
	if source == "" {
		return nil, errors.New("fork sandbox: the name of the source is empty")
	}
	var out api.SandboxAndSession
	r := request{method: http.MethodPost, path: append(sandboxPath(source), "fork"), json: req, key: true}
	if err := c.call(ctx, r, &out); err != nil {
		return nil, wrap(err, "fork sandbox %s", source)
	}
	return c.newSandbox(out), nil
}

// GetOrCreateSandbox returns the sandbox that req names with a running
// session. Where there is none it makes it, and created is true; so it does
// where what it would resume from was deleted or has expired, after removing
// what is left of it.
func (c *Client) GetOrCreateSandbox(ctx context.Context, req api.CreateSandboxRequest) (s *Sandbox, created bool, err error) {
	if req.Name == "" {
		s, err = c.CreateSandbox(ctx, req)
		return s, err == nil, err
	}
	s, err = c.ResumeSandbox(ctx, req.Name)
	switch errorCode(err) {
	case api.CodeNotFound:
	case api.CodeSnapshotNotFound:
		if err := c.DeleteSandbox(ctx, req.Name, false); err != nil && errorCode(err) != api.CodeNotFound {
			return nil, false, err
		}
	default:
		return s, false, err
	}
	s, err = c.CreateSandbox(ctx, req)
	if errorCode(err) == api.CodeBadRequest { // perhaps another one was faster
		if other, otherErr := c.ResumeSandbox(ctx, req.Name); otherErr == nil {
			return other, false, nil
		}
	}
	return s, err == nil, err
}

func errorCode(err error) api.Code {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Code
	}
	return ""
}
