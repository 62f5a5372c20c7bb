package gvisor

import (
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentryseccomp"
)

// Limits inside of a machine that no Spec changes.
const (
	// guestFiles is RLIMIT_NOFILE of every guest process, soft and hard.
	guestFiles = 65536
	// guestTasks is RLIMIT_NPROC: how many threads and processes each user
	// of the guest may have, root included.
	guestTasks = 4096
)

// guestCaps are the agent's capabilities: a container's usual ones without
// network administration and raw sockets, and what the agent needs to
// assemble the root (SYS_ADMIN, and SETPCAP to give both up afterwards).
var guestCaps = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
	"CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_AUDIT_WRITE", "CAP_MKNOD", "CAP_SETFCAP",
	"CAP_SYS_ADMIN", "CAP_SETPCAP",
}

// kernelFlags are the kernel's configuration as command-line flags.
func kernelFlags(dataDir string) ([]string, error) {
	fs := flag.NewFlagSet(kernelName, flag.ContinueOnError)
	config.RegisterFlags(fs)
	if err := fs.Parse([]string{
		"--root=" + dataDir,
		"--platform=" + sentryseccomp.Platform,
		"--network=none", // no network of the host's; the cable comes by a call
		// No file of the host's is opened after the start: the stricter
		// seccomp filter, and no capability for files.
		"--directfs=false",
		"--overlay2=none",
		"--ignore-cgroups",
		"--allow-suid", // sudo
		// gVisor looks for binaries of its own build beside ours; this
		// binary is all there is.
		"--sidecar-usage-policy=LEGACY_DEPRECATED_SLOW_EMBEDDED_FALLBACK",
	}); err != nil {
		return nil, fmt.Errorf("configure the sandbox kernel: %w", err)
	}
	conf, err := config.NewFromFlags(fs)
	if err != nil {
		return nil, fmt.Errorf("configure the sandbox kernel: %w", err)
	}
	return conf.ToFlags(), nil
}

// containerID names the machine to its own kernel. It is the same for all: the
// guest can see it, and some names would clash with names that the kernel has
// (tasks, for one, ends it).
const containerID = "machine"

// emptyDir stands where gVisor wants a path on the host that it never opens.
const emptyDir = "/nonexistent"

// guestSpec is the machine as an OCI spec: the boot image as root, the usual
// kernel file systems, and a writable file system at driver.UpperDir. The
// mount configurations go with root and mounts that are backed by files.
func guestSpec(s driver.Spec, bootImage string) (*specs.Spec, specutils.GoferMountConfFlags) {
	spec := &specs.Spec{
		Version: "1.0.0",
		Process: &specs.Process{
			Args:         []string{"/agent"},
			Env:          []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
			Cwd:          "/",
			Capabilities: &specs.LinuxCapabilities{Bounding: guestCaps, Effective: guestCaps, Permitted: guestCaps},
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Hard: guestFiles, Soft: guestFiles},
				{Type: "RLIMIT_NPROC", Hard: guestTasks, Soft: guestTasks},
			},
		},
		Root:     &specs.Root{Path: emptyDir, Readonly: true},
		Hostname: s.Hostname,
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "nodev", "mode=1777", fmt.Sprintf("size=%d", s.MemoryBytes/2)}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			// gVisor makes a tmpfs on the given file of a bind mount that
			// has no lower directory. The size counts only here.
			{Destination: driver.UpperDir, Type: "bind", Source: emptyDir, Options: []string{"rw", fmt.Sprintf("size=%d", s.DiskBytes)}},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
			{Type: specs.MountNamespace}, {Type: specs.NetworkNamespace},
		}},
		Annotations: map[string]string{
			// The name ties what a checkpoint saved to what restores it.
			"io.kubernetes.cri.container-name": containerID,
			"dev.gvisor.spec.rootfs.source":    bootImage,
			"dev.gvisor.spec.rootfs.type":      "erofs",
		},
	}
	confs := specutils.GoferMountConfFlags{
		{Lower: specutils.Erofs, Upper: specutils.NoOverlay},
		{Lower: specutils.NoneLower, Upper: specutils.AnonOverlay},
	}
	return spec, confs
}
