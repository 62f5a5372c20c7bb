package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentryhook"
)

// upper is a writable layer: where it is mounted in a bare machine, and what
// is behind it on the host.
type upper struct {
	mount string
	file  *os.File
	limit int64
}

// driveState is what a later server must know of a drive.
type driveState struct {
	Disk  fileID `json:"disk"`
	Bytes int64  `json:"bytes"`
}

func (m *Machine) closeDrives() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.drives {
		d.file.Close()
	}
}

// MountDrives implements driver.Machine.
func (m *Machine) MountDrives(ctx context.Context, drives []driver.Drive) error {
	if err := m.mountDrives(ctx, drives); err != nil {
		return fmt.Errorf("mount drives into machine %s: %w", m.spec.ID, m.ended(err))
	}
	return nil
}

func (m *Machine) mountDrives(ctx context.Context, drives []driver.Drive) error {
	if len(drives) > driver.MaxDrives {
		return fmt.Errorf("%d drives: at most %d", len(drives), driver.MaxDrives)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.layers:
		return errors.New("it has no layers yet")
	case m.drives != nil:
		return errors.New("it has its drives already")
	}
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	var mounts []sentryhook.Drive
	for i, d := range drives {
		if len(d.Layers) > driver.MaxLayers {
			return fmt.Errorf("drive %d has %d layers: at most %d", i, len(d.Layers), driver.MaxLayers)
		}
		store, err := namelessFile(m.dir)
		if err != nil {
			return err
		}
		m.drives = append(m.drives, upper{mount: driver.DriveDir(i), file: store, limit: d.Bytes})
		id, err := identify(store)
		if err != nil {
			return err
		}
		m.state.Drives = append(m.state.Drives, driveState{id, d.Bytes})
		file, err := dup(store)
		if err != nil {
			return err
		}
		files = append(files, file)
		at := sentryhook.Drive{Dir: driver.DriveDir(i), Bytes: d.Bytes}
		for j, name := range d.Layers {
			f, err := os.Open(name)
			if err != nil {
				return err
			}
			files = append(files, f)
			at.Layers = append(at.Layers, driver.DriveLayerDir(i, j))
		}
		mounts = append(mounts, at)
	}
	if err := m.state.save(m.dir); err != nil {
		return err
	}
	if err := m.awaitArmed(ctx); err != nil {
		return err
	}
	return m.hook(ctx, sentryhook.Drives(mounts), files...)
}

// uppers are all writable layers, the root's first.
func (m *Machine) uppers() []upper {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]upper{{mount: driver.UpperDir, file: m.disk, limit: m.spec.DiskBytes}}, m.drives...)
}
