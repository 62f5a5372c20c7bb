package api

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

var nameRE = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// reservedNames stand where a sandbox's name does in paths of the API.
var reservedNames = []string{"sessions", "snapshots", "drives"}

// ValidateName checks a sandbox's name, found in field.
func ValidateName(field, name string) error {
	switch {
	case len(name) > MaxNameLength:
		return BadRequest("field %s: has %d characters, at most %d are allowed", field, len(name), MaxNameLength)
	case !nameRE.MatchString(name):
		return BadRequest("field %s: %q must be of letters, digits, _ and - only", field, clip(name))
	case slices.Contains(reservedNames, name):
		return BadRequest("field %s: %q is a path of the API; choose another", field, name)
	}
	return nil
}

// ValidatePreviewToken checks the token of a sandbox's previews; "" is none.
func ValidatePreviewToken(token string) error {
	if token == "" {
		return nil
	}
	if len(token) < MinPreviewToken || len(token) > MaxPreviewToken {
		return BadRequest("field __previewToken: has %d characters, %d to %d are allowed", len(token), MinPreviewToken, MaxPreviewToken)
	}
	for _, c := range []byte(token) {
		if !strings.ContainsRune("-._~", rune(c)) && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return BadRequest("field __previewToken: must be of letters, digits, -, ., _ and ~ only, since it stands in URLs and cookies")
		}
	}
	return nil
}

// ValidatePorts checks a list of ports and returns them.
func ValidatePorts(ports []Int) ([]int, error) {
	if len(ports) > MaxPorts {
		return nil, BadRequest("field ports: has %d ports, at most %d are allowed", len(ports), MaxPorts)
	}
	out := make([]int, 0, len(ports))
	for i, p := range ports {
		v, _ := p.Get()
		switch {
		case v < 1 || v > 65535:
			return nil, BadRequest("field ports[%d]: %d is not a port; use 1 to 65535", i, v)
		case v == ReservedPort:
			return nil, BadRequest("field ports[%d]: %d is reserved inside sandboxes; use another port", i, v)
		case slices.Contains(out, int(v)):
			return nil, BadRequest("field ports[%d]: %d is there twice", i, v)
		}
		out = append(out, int(v))
	}
	return out, nil
}

// ValidateTimeout checks a session's time-out in milliseconds.
func (l Limits) ValidateTimeout(field string, timeout Int) (time.Duration, error) {
	v, set := timeout.Get()
	if !set {
		return min(DefaultTimeout, l.MaxTimeout), nil
	}
	if v < MinTimeout.Milliseconds() {
		return 0, Errorf(CodeTimeoutInvalid, "field %s: %d ms is too short; use at least %d", field, v, MinTimeout.Milliseconds())
	}
	if v > l.MaxTimeout.Milliseconds() {
		return 0, Errorf(CodeTimeoutInvalid, "field %s: %d ms is too long; this server allows at most %d", field, v, l.MaxTimeout.Milliseconds())
	}
	return time.Duration(v) * time.Millisecond, nil
}

// ValidateEnv checks environment variables.
func (l Limits) ValidateEnv(env map[string]string) error {
	total := 0
	for k, v := range env {
		total += len(k) + len(v) + 2 // as the kernel counts: '=' and NUL
		switch {
		case k == "":
			return BadRequest("field env: a variable's name is empty")
		case strings.ContainsAny(k, "=\x00"):
			return BadRequest("field env: the name %q must not hold '=' or NUL", clip(k))
		case strings.Contains(v, "\x00"):
			return BadRequest("field env: the value of %q must not hold NUL", clip(k))
		}
	}
	if total > l.EnvBytes {
		return BadRequest("field env: has %d bytes in all, at most %d are allowed", total, l.EnvBytes)
	}
	return nil
}

// ValidateTags checks tags.
func ValidateTags(tags map[string]string) error {
	if len(tags) > MaxTags {
		return BadRequest("field tags: has %d tags, at most %d are allowed", len(tags), MaxTags)
	}
	for k, v := range tags {
		switch {
		case k == "":
			return BadRequest("field tags: a tag's key is empty")
		case utf8.RuneCountInString(k) > MaxTagKeyLength:
			return BadRequest("field tags: the key %q is longer than %d characters", clip(k), MaxTagKeyLength)
		case utf8.RuneCountInString(v) > MaxTagValueLength:
			return BadRequest("field tags: the value of %q is longer than %d characters", clip(k), MaxTagValueLength)
		}
	}
	return nil
}

// ValidateResources returns the number of vCPUs.
func (l Limits) ValidateResources(r *Resources) (int, error) {
	if r == nil {
		return min(DefaultVCPUs, l.MaxVCPUs), nil
	}
	memory, memorySet := r.Memory.Get()
	v, set := r.VCPUs.Get()
	switch {
	case !set && !memorySet:
		return min(DefaultVCPUs, l.MaxVCPUs), nil
	case !set:
		v = memory / MemoryPerVCPU
	}
	if v != 1 && (v < 1 || v%2 != 0) {
		return 0, BadRequest("field resources.vcpus: %d is not possible; use 1 or an even number", v)
	}
	if v > int64(l.MaxVCPUs) {
		return 0, BadRequest("field resources.vcpus: %d is more than this server gives; use at most %d", v, l.MaxVCPUs)
	}
	if memorySet && memory != v*MemoryPerVCPU {
		return 0, BadRequest("field resources.memory: %d MB does not fit %d vCPUs; leave it out or use %d (%d MB per vCPU)", memory, v, v*MemoryPerVCPU, MemoryPerVCPU)
	}
	return int(v), nil
}

// ValidateRegions checks a region and those to fail over to.
func ValidateRegions(region string, failover []string) error {
	for i, r := range append([]string{region}, failover...) {
		field := "region"
		if i > 0 {
			field = fmt.Sprintf("failoverRegions[%d]", i-1)
			if r == region {
				return BadRequest("field %s: %q is the region itself; leave it out", field, clip(r))
			}
		}
		if r == "" || len(r) > MaxRegionLength {
			return BadRequest("field %s: must have 1 to %d characters", field, MaxRegionLength)
		}
	}
	return nil
}

// kernelDirs are the top directories at which the kernel's file systems are.
var kernelDirs = []string{"proc", "sys", "dev"}

// ValidateDriveSize checks the size in bytes that a drive is to have.
func ValidateDriveSize(size Int) error {
	if n, set := size.Get(); set && (n < MinDriveSize || n > MaxDriveSize) {
		return BadRequest("field maxSizeBytes: %d must be %d to %d", n, int64(MinDriveSize), int64(MaxDriveSize))
	}
	return nil
}

// ValidateMounts checks mount paths and modes; whether a drive exists is not
// its business.
func ValidateMounts(mounts map[string]Mount) error {
	if len(mounts) > MaxMounts {
		return BadRequest("field mounts: has %d drives, at most %d are allowed", len(mounts), MaxMounts)
	}
	writers := map[string]string{} // path by drive
	for _, p := range slices.Sorted(maps.Keys(mounts)) {
		m := mounts[p]
		if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || strings.Contains(p, "\x00") {
			return BadRequest("field mounts: %q must be an absolute, clean path below /", clip(p))
		}
		if len(p) > MaxPathLength {
			return BadRequest("field mounts: %q is longer than %d bytes", clip(p), MaxPathLength)
		}
		if top, _, _ := strings.Cut(p[1:], "/"); slices.Contains(kernelDirs, top) {
			return BadRequest("field mounts: %q lies in /%s, which is the kernel's; choose another path", clip(p), top)
		}
		for other := range mounts {
			if other != p && strings.HasPrefix(other, p+"/") {
				return BadRequest("field mounts: %q lies inside %q; mount paths must not overlap", clip(other), clip(p))
			}
		}
		switch m.Mode {
		case "", MountReadWrite:
			if writer, twice := writers[m.Drive]; twice {
				return BadRequest("field mounts: drive %q is mounted for writing at %q and %q; give one of them the mode snapshot", clip(m.Drive), clip(writer), clip(p))
			}
			writers[m.Drive] = p
		case MountSnapshot, MountReadOnly:
		default:
			return BadRequest("field mounts[%q].mode: %q is unknown; use read-write or snapshot", clip(p), clip(m.Mode))
		}
		if m.Drive == "" {
			return BadRequest("field mounts[%q].drive: is empty; name the drive", clip(p))
		}
	}
	return nil
}

// ValidateSnapshotExpiration checks a duration in milliseconds, 0 = never.
func ValidateSnapshotExpiration(field string, e Int) error {
	if v, set := e.Get(); set && v < 0 {
		return BadRequest("field %s: %d ms is negative; use 0 for never, or a duration", field, v)
	}
	return nil
}

// ValidateKeepLast checks a retention rule and returns it as answers show it.
func ValidateKeepLast(k *KeepLastSnapshots) (*SnapshotRetention, error) {
	if k == nil {
		return nil, nil
	}
	count, set := k.Count.Get()
	if !set || count < 1 || count > MaxKeepLast {
		return nil, BadRequest("field keepLastSnapshots.count: must be 1 to %d", MaxKeepLast)
	}
	if err := ValidateSnapshotExpiration("keepLastSnapshots.expiration", k.Expiration); err != nil {
		return nil, err
	}
	out := &SnapshotRetention{Count: count, DeleteEvicted: k.DeleteEvicted == nil || *k.DeleteEvicted}
	if e, set := k.Expiration.Get(); set {
		out.Expiration = &e
	}
	return out, nil
}
