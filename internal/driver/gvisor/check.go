package gvisor

import (
	"context"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// Check implements driver.Driver.
func (d *Driver) Check(context.Context) []driver.Problem { return nil }
