package fakecontrol

import (
	"context"
	"maps"
	"slices"

	"github.com/glovebox-dev/glovebox/api"
)

// GetDrive finds it by name.
func (p *Project) GetDrive(_ context.Context, name string) (*api.Drive, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.drives[name]
	if d == nil {
		return nil, api.NotFound("drive", name)
	}
	out := *d
	return &out, nil
}

// CreateDrive makes it where there is none.
func (p *Project) CreateDrive(ctx context.Context, name string, req api.CreateDriveRequest) (*api.Drive, bool, error) {
	if err := api.ValidateName("name", name); err != nil {
		return nil, false, err
	}
	p.mu.Lock()
	made := p.drives[name] == nil
	if made {
		p.drives[name] = &api.Drive{ID: p.c.id(api.DrivePrefix), Name: name, ProjectID: p.name, Region: api.DefaultRegion,
			MaxSizeBytes: req.MaxSizeBytes.Or(1 << 30), CreatedAt: Epoch, UpdatedAt: Epoch}
	}
	p.mu.Unlock()
	d, err := p.GetDrive(ctx, name)
	return d, made, err
}

// ListDrives is one page, by name.
func (p *Project) ListDrives(context.Context, api.ListDrivesQuery) (*api.DrivesPage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	page := &api.DrivesPage{Drives: []api.Drive{}, Pagination: api.Pagination{Count: len(p.drives)}}
	for _, name := range slices.Sorted(maps.Keys(p.drives)) {
		page.Drives = append(page.Drives, *p.drives[name])
	}
	return page, nil
}

// DeleteDrive removes it.
func (p *Project) DeleteDrive(ctx context.Context, name string) (*api.Drive, error) {
	d, err := p.GetDrive(ctx, name)
	if err == nil {
		p.mu.Lock()
		delete(p.drives, name)
		p.mu.Unlock()
	}
	return d, err
}
