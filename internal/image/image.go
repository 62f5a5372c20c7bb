// Package image turns OCI references, archives, directories and built-in
// recipes into immutable EROFS layers by digest, with the part of the OCI
// config that a sandbox needs.
package image

import "time"

// Image is what a sandbox starts from. Immutable.
type Image struct {
	// Reference is the canonical name it was made from, such as
	// "glovebox/universal" or "docker.io/library/python:3.12-slim".
	Reference string `json:"reference"`
	// Digest ("sha256:…") pins the content: layers and config.
	Digest string `json:"digest"`
	// Layers from the bottom up; their files live as long as the image.
	Layers  []Layer   `json:"layers"`
	Config  Config    `json:"config"`
	Created time.Time `json:"created"`
}

// Layer is one EROFS file.
type Layer struct {
	Digest string `json:"digest"` // of the EROFS file, "sha256:…"
	Path   string `json:"-"`      // absolute, filled in by the store
	Size   int64  `json:"size"`   // bytes of the file
	Holes  int64  `json:"-"`      // of Size, bytes of holes, which take up no disk
	// Xattrs are the extended attributes that the layer's files carry, by
	// absolute path in the image and name: EROFS in gVisor has none, so the
	// agent sets them again when it assembles the root.
	Xattrs map[string]map[string][]byte `json:"xattrs,omitempty"`
}

// Config is what commands inherit from the image.
type Config struct {
	Env        []string `json:"env"`        // "K=V", PATH among them
	WorkingDir string   `json:"workingDir"` // absolute; "/vercel/sandbox" where the image names none
	User       User     `json:"user"`       // who runs commands without sudo
}

// User is a resolved user of the image's own /etc/passwd and /etc/group.
type User struct {
	Name   string   `json:"name"`
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups"` // supplementary
	Home   string   `json:"home"`
}

// DefaultReference names the image of a create call that names none.
const DefaultReference = "glovebox/universal"
