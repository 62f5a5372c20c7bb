package server

import (
	"net/http"

	"github.com/glovebox-dev/glovebox/api"
)

// snapshot returns the id of the snapshot in the path and the project to look
// for it in, as session does.
func (c *call) snapshot() (Project, string, error) { return c.owned(c.param("snapshot")) }

func (c *call) createSnapshot() error {
	var req api.CreateSnapshotRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	p, id, err := c.session()
	if err != nil {
		return err
	}
	out, err := p.CreateSnapshot(c.detached(), id, req, c.idempotencyKey())
	if err != nil {
		return err
	}
	c.writeJSON(http.StatusCreated, out)
	return nil
}

func (c *call) forkSandbox() error {
	var req api.ForkSandboxRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	p, err := c.named("")
	if err != nil {
		return err
	}
	return c.ok(p.ForkSandbox(c.r.Context(), c.param("name"), req, c.idempotencyKey()))
}

func (c *call) listSnapshots() error {
	q, err := api.ParseListSnapshots(c.r.URL.Query())
	if err != nil {
		return err
	}
	p, err := c.named("")
	if err != nil {
		return err
	}
	return c.ok(p.ListSnapshots(c.r.Context(), q))
}

func (c *call) snapshotTree() error {
	q, err := api.ParseSnapshotTree(c.r.URL.Query())
	if err != nil {
		return err
	}
	p, id, err := c.owned(q.SnapshotID)
	if err != nil {
		return err
	}
	q.SnapshotID = id
	return c.ok(p.SnapshotTree(c.r.Context(), q))
}

func (c *call) getSnapshot() error {
	p, id, err := c.snapshot()
	if err != nil {
		return err
	}
	return c.okSnapshot(p.GetSnapshot(c.r.Context(), id))
}

func (c *call) diffSnapshots() error {
	with := c.r.URL.Query().Get("with")
	if with == "" {
		return api.BadRequest("query with: is missing; name the snapshot to compare with")
	}
	p, id, err := c.snapshot()
	if err != nil {
		return err
	}
	return c.ok(p.DiffSnapshots(c.r.Context(), id, with))
}

func (c *call) deleteSnapshot() error {
	p, id, err := c.snapshot()
	if err != nil {
		return err
	}
	return c.okSnapshot(p.DeleteSnapshot(c.detached(), id))
}

func (c *call) okSnapshot(snapshot *api.Snapshot, err error) error {
	if err != nil {
		return err
	}
	return c.ok(api.SnapshotResponse{Snapshot: *snapshot}, nil)
}
