package sentryhook

import (
	"errors"
	"fmt"

	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/sentry/checkpoint"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/tmpfs"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// Drive is what Drives mounts of one drive.
type Drive struct {
	Dir    string   // where its writable file system is mounted
	Bytes  int64    // at most, in that
	Layers []string // where its images are mounted
}

// Drives is the session that mounts drives. The files that travel with it are,
// for each drive, that of its writable file system and then its images.
func Drives(drives []Drive) seccheck.SessionConfig {
	var calls []map[string]any
	for _, d := range drives {
		calls = append(calls, map[string]any{"op": opDisk, "dest": d.Dir, "size": fmt.Sprint(d.Bytes)})
		for _, dest := range d.Layers {
			calls = append(calls, mountCall(dest))
		}
	}
	return session(calls...)
}

// mountDisk mounts a tmpfs whose contents are in a file of the host's, as
// gVisor does it for the mounts of a spec.
func mountDisk(conf map[string]any, store *fd.FD) error {
	dest, _ := conf["dest"].(string)
	size, _ := conf["size"].(string)
	if store == nil {
		return errors.New("mount disk: no file came with the call")
	}
	return mountAt(dest, tmpfs.Name, func(id checkpoint.ResourceID) (*vfs.MountOptions, error) {
		mf, err := pgalloc.NewMemoryFile(store.ReleaseToFile("drive"), pgalloc.MemoryFileOpts{
			DiskBackedFile: true, DecommitOnDestroy: true,
			// It makes a mapping that the kernel's seccomp filter forbids.
			DisableIMAWorkAround: true,
			ResourceID:           id,
		})
		if err != nil {
			return nil, err
		}
		return &vfs.MountOptions{GetFilesystemOptions: vfs.GetFilesystemOptions{
			InternalMount: true,
			Data:          "mode=0755,size=" + size,
			InternalData:  tmpfs.FilesystemOpts{MemoryFile: mf, DisableDefaultSizeLimit: true},
		}}, nil
	})
}
