package server

import (
	"context"

	"github.com/glovebox-dev/glovebox/api"
)

// detached is the request's context without its end: what a call has begun
// to stop or to remove is finished also if the client goes away.
func (c *call) detached() context.Context { return context.WithoutCancel(c.r.Context()) }

func (c *call) createSandbox() error {
	var req api.CreateSandboxRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	p, err := c.named(req.ProjectID)
	if err != nil {
		return err
	}
	return c.ok(p.CreateSandbox(c.r.Context(), req, c.idempotencyKey()))
}

func (c *call) listSandboxes() error {
	q, err := api.ParseListSandboxes(c.r.URL.Query())
	if err != nil {
		return err
	}
	p, err := c.named("")
	if err != nil {
		return err
	}
	return c.ok(p.ListSandboxes(c.r.Context(), q))
}

func (c *call) getSandbox() error {
	resume, err := c.boolQuery("resume")
	if err != nil {
		return err
	}
	p, err := c.named("")
	if err != nil {
		return err
	}
	// A HEAD is a look from outside and starts nothing.
	resume = resume && c.r.Method == "GET"
	return c.ok(p.GetSandbox(c.r.Context(), c.param("name"), resume))
}

func (c *call) updateSandbox() error {
	var req api.UpdateSandboxRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	p, err := c.named("")
	if err != nil {
		return err
	}
	return c.ok(p.UpdateSandbox(c.r.Context(), c.param("name"), req))
}

func (c *call) deleteSandbox() error {
	orphans, err := c.boolQuery("deleteOrphanSnapshots")
	if err != nil {
		return err
	}
	p, err := c.named("")
	if err != nil {
		return err
	}
	return c.ok(p.DeleteSandbox(c.detached(), c.param("name"), orphans))
}

func (c *call) listSessions() error {
	q, err := api.ParseListSessions(c.r.URL.Query())
	if err != nil {
		return err
	}
	p, err := c.named("")
	if err != nil {
		return err
	}
	return c.ok(p.ListSessions(c.r.Context(), q))
}

func (c *call) getSession() error {
	p, id, err := c.session()
	if err != nil {
		return err
	}
	return c.ok(p.GetSession(c.r.Context(), id))
}

func (c *call) stopSession() error {
	p, id, err := c.session()
	if err != nil {
		return err
	}
	return c.ok(p.StopSession(c.detached(), id))
}

func (c *call) extendTimeout() error {
	var req api.ExtendTimeoutRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	p, id, err := c.session()
	if err != nil {
		return err
	}
	return c.okSession(p.ExtendTimeout(c.r.Context(), id, req.Duration))
}

func (c *call) setNetworkPolicy() error {
	var req api.NetworkPolicyRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	p, id, err := c.session()
	if err != nil {
		return err
	}
	return c.okSession(p.SetNetworkPolicy(c.r.Context(), id, req))
}

func (c *call) okSession(session *api.Session, err error) error {
	if err != nil {
		return err
	}
	return c.ok(api.SessionResponse{Session: *session}, nil)
}
