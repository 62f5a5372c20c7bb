// Package sentryhook runs code of ours inside the sandbox kernel, without a
// fork of gVisor.
//
// The kernel is our binary executed once more, so a seccheck sink registered
// here exists in it too. gVisor's CreateTraceSession call hands a sink a JSON
// object and a descriptor: a remote call with arbitrary arguments, whose
// error is the call's. A trace point hands it a context, and from that comes
// the kernel object.
//
//	Arm    (in the kernel's process, before it boots): a session with the point
//	       sentry/clone. The first thread that PID 1 makes gives the kernel
//	       object; a Go program makes several before it runs main. A closed
//	       pipe tells the driver.
//	Layers (a remote call, when a machine is claimed): a session without points,
//	       which ends the tracing; each of its sinks mounts one EROFS image.
//	Drives (a remote call) mounts images as Layers does, and disks: writable
//	       file systems on a file of the host's that has no name.
//	Freeze and Thaw (remote calls) stop the guest and write out the trees of its
//	       writable layers, and let it go on.
//	Lease  (a remote call, of a server that takes over) keeps the kernel for
//	       as long as that server lives.
//
// gVisor's own Mount call would do all this but leaves the mount without a
// UniqueID, and a checkpoint of such a machine cannot be restored.
package sentryhook

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/sentry/checkpoint"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/erofs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	pb "gvisor.dev/gvisor/pkg/sentry/seccheck/points/points_go_proto"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

const (
	sinkName = "glovebox"
	opArm    = "arm"
	opMount  = "mount"
	opDisk   = "disk"
	opFreeze = "freeze"
	opTree   = "tree"
	opThaw   = "thaw"
	opLease  = "lease"
)

func init() { seccheck.RegisterSink(seccheck.SinkDesc{Name: sinkName, New: call}) }

// Arm makes this process, which is about to become a sandbox kernel, keep
// the kernel object as soon as the guest makes its first thread, and close
// armed then. Layers must not be called before: a new session ends the armed
// one first.
func Arm(armed *os.File) error {
	guest.armed = armed
	seccheck.Initialize() // the points; the kernel does it again, to no effect
	return seccheck.Create(&seccheck.SessionConfig{
		Name:   seccheck.DefaultSessionName,
		Points: []seccheck.PointConfig{{Name: "sentry/clone"}},
		Sinks:  []seccheck.SinkConfig{{Name: sinkName, Config: map[string]any{"op": opArm}}},
	}, true)
}

// Layers is the session that mounts one image per destination, read-only; the
// images travel as the call's files, in the same order.
func Layers(dest []string) seccheck.SessionConfig {
	var calls []map[string]any
	for _, d := range dest {
		calls = append(calls, mountCall(d))
	}
	return session(calls...)
}

func mountCall(dest string) map[string]any { return map[string]any{"op": opMount, "dest": dest} }

var guest struct {
	once   sync.Once
	armed  *os.File
	kernel atomic.Pointer[kernel.Kernel]
}

type sink struct{ seccheck.SinkDefaults }

func (sink) Name() string { return sinkName }

// Clone runs on the thread that clones, in the kernel.
func (sink) Clone(ctx context.Context, _ seccheck.FieldSet, _ *pb.CloneInfo) error {
	if t, ok := ctx.(*kernel.Task); ok {
		guest.once.Do(func() {
			guest.kernel.Store(t.Kernel())
			guest.armed.Close()
		})
	}
	return nil
}

// call runs in the kernel, on the goroutine of the remote call.
func call(conf map[string]any, file *fd.FD) (seccheck.Sink, error) {
	switch op := conf["op"]; op {
	case opArm:
		return sink{}, nil
	case opMount:
		dest, _ := conf["dest"].(string)
		return sink{}, mountLayer(dest, file)
	case opDisk:
		return sink{}, mountDisk(conf, file)
	case opFreeze:
		return sink{}, freeze(conf, file)
	case opTree:
		return sink{}, tree(conf, file)
	case opThaw:
		return sink{}, thaw(conf)
	case opLease:
		return sink{}, hold(file)
	default:
		return nil, fmt.Errorf("sentryhook: unknown operation %v", op)
	}
}

func mountLayer(dest string, image *fd.FD) error {
	if image == nil {
		return errors.New("mount layer: no image came with the call")
	}
	return mountAt(dest, erofs.Name, func(id checkpoint.ResourceID) (*vfs.MountOptions, error) {
		ifd := image.Release() // the file system owns it from here, also when it fails
		return &vfs.MountOptions{ReadOnly: true, GetFilesystemOptions: vfs.GetFilesystemOptions{
			InternalMount: true,
			Data:          fmt.Sprintf("ifd=%d", ifd),
			InternalData:  erofs.InternalFilesystemOptions{UniqueID: id},
		}}, nil
	})
}

// mountAt mounts a file system in the root of PID 1, which must not have
// assembled another one yet. Its id is the key under which a restore looks for
// what is behind it: container name and destination in spec.Mounts.
func mountAt(dest, fsType string, options func(id checkpoint.ResourceID) (*vfs.MountOptions, error)) error {
	k := guest.kernel.Load()
	if k == nil {
		return fmt.Errorf("mount at %s: PID 1 has not started a thread yet", dest)
	}
	ctx := k.SupervisorContext()
	t := k.GlobalInit().Leader()
	root := t.FSContext().RootDirectory()
	defer root.DecRef(ctx)
	opts, err := options(checkpoint.ResourceID{ContainerName: k.ContainerName(t.ContainerID()), Path: dest})
	if err == nil {
		_, err = k.VFS().MountAt(ctx, t.Credentials(), sinkName,
			&vfs.PathOperation{Root: root, Start: root, Path: fspath.Parse(dest)}, fsType, opts)
	}
	if err != nil {
		return fmt.Errorf("mount at %s: %w", dest, err)
	}
	return nil
}
