package node

import (
	"context"
	"fmt"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/image"
)

// Drive is a disk of a machine besides its root, with layers of its own.
type Drive struct {
	Path string // where the guest sees it
	// Layers of its last state, bottom first; their digests are enough. At
	// most driver.MaxLayers; none: it is empty.
	Layers []image.Layer
	// MaxBytes bounds what it holds (ENOSPC beyond). What is deleted of its
	// last state makes room in the next session.
	MaxBytes int64
	ReadOnly bool
}

// addDrives adds to a how drives are assembled.
func (n *node) addDrives(a *guest.Assembly, drives []Drive) error {
	for _, d := range drives {
		extras, err := n.cfg.Snapshots.Extras(d.Layers)
		if err != nil {
			return fmt.Errorf("drive at %s: %w", d.Path, err)
		}
		a.Drives = append(a.Drives, guest.Drive{Path: d.Path, Layers: len(d.Layers), ReadOnly: d.ReadOnly, Extras: guestExtras(d.Path, extras)})
	}
	return nil
}

// mountDrives mounts drives into a bare machine that has its layers.
func (n *node) mountDrives(ctx context.Context, m *machine, drives []Drive) error {
	if len(drives) == 0 {
		return nil
	}
	var parts []driver.Drive
	for _, d := range drives {
		// Of a read-only one the writable layer takes the attributes that its
		// layers cannot hold.
		part := driver.Drive{Bytes: m.size.disk}
		if !d.ReadOnly {
			used, err := n.cfg.Snapshots.Size(d.Layers)
			if err != nil {
				return fmt.Errorf("measure the drive at %s: %w", d.Path, err)
			}
			part.Bytes = max(d.MaxBytes-used, pageSize)
		}
		for _, l := range d.Layers {
			part.Layers = append(part.Layers, l.Path)
		}
		parts = append(parts, part)
	}
	if err := m.MountDrives(ctx, parts); err != nil {
		return fmt.Errorf("mount drives: %w", err)
	}
	return nil
}

// pageSize is the least that a file system can be limited to.
const pageSize = 4096

// locatedDrives finds the files of the drives' layers.
func (n *node) locatedDrives(drives []Drive) (out []Drive, err error) {
	if len(drives) > 0 && n.cfg.Snapshots == nil {
		return nil, errNoSnapshots
	}
	for _, d := range drives {
		if d.Layers, err = n.located(d.Layers); err != nil {
			return nil, fmt.Errorf("drive at %s: %w", d.Path, err)
		}
		out = append(out, d)
	}
	return out, nil
}
