package server

import "github.com/glovebox-dev/glovebox/api"

// everything refuses a token that is one project's: what it asks for is about
// the whole server.
func (c *call) everything() error {
	if c.identity.Project != "" {
		return api.BadRequest("the disk is all projects' together: use the server's first token, or the command line on its machine")
	}
	return nil
}

func (c *call) diskUse() error {
	if err := c.everything(); err != nil {
		return err
	}
	return c.ok(c.s.control.DiskUse(c.r.Context()))
}

func (c *call) prune() error {
	var req api.PruneRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	if err := c.everything(); err != nil {
		return err
	}
	return c.ok(c.s.control.Prune(c.detached(), req))
}
