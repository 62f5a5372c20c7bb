package server

import (
	"net/http"

	"github.com/glovebox-dev/glovebox/api"
)

func (c *call) listDrives() error {
	q, err := api.ParseListDrives(c.r.URL.Query())
	if err != nil {
		return err
	}
	p, err := c.named("")
	if err != nil {
		return err
	}
	return c.ok(p.ListDrives(c.r.Context(), q))
}

func (c *call) getDrive() error {
	p, err := c.named("")
	if err != nil {
		return err
	}
	return c.okDrive(p.GetDrive(c.r.Context(), c.param("drive")))
}

func (c *call) createDrive() error {
	var req api.CreateDriveRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	p, err := c.named(req.ProjectID)
	if err != nil {
		return err
	}
	drive, made, err := p.CreateDrive(c.r.Context(), c.param("drive"), req)
	if err != nil || !made {
		return c.okDrive(drive, err)
	}
	c.writeJSON(http.StatusCreated, api.DriveResponse{Drive: *drive})
	return nil
}

func (c *call) deleteDrive() error {
	p, err := c.named("")
	if err != nil {
		return err
	}
	return c.okDrive(p.DeleteDrive(c.detached(), c.param("drive")))
}

func (c *call) okDrive(drive *api.Drive, err error) error {
	if err != nil {
		return err
	}
	return c.ok(api.DriveResponse{Drive: *drive}, nil)
}
