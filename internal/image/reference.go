package image

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

const (
	// maxReference is the longest reference that the API takes.
	maxReference = 255
	ownPrefix    = "glovebox/"
	digestPrefix = "sha256:"
)

// runtimes are names that clients use for the default image; the last is what
// the platform calls its own.
var runtimes = map[string]bool{"node24": true, "node22": true, "python3.13": true, "vercel/sandbox/universal": true}

// Canonical returns the full name of what a user calls an image: the default
// image for "", for its runtimes and for itself; a digest as it is, also that
// of a default image; anything else as docker reads it, with registry and tag
// filled in.
func Canonical(ref string) (string, error) {
	if ref == "" || runtimes[ref] {
		return DefaultReference, nil
	}
	if len(ref) > maxReference {
		return "", fmt.Errorf("%w: %d characters, allowed are %d", ErrInvalidReference, len(ref), maxReference)
	}
	if isDigest(ref) {
		return ref, nil
	}
	if strings.HasPrefix(ref, ownPrefix) {
		if strings.TrimSuffix(ref, ":latest") == DefaultReference {
			return DefaultReference, nil
		}
		if digest, ok := strings.CutPrefix(ref, DefaultReference+"@"); ok && isDigest(digest) {
			return digest, nil
		}
		return "", fmt.Errorf("%w: %q: names under %s are built in, and there is only %s", ErrInvalidReference, ref, ownPrefix, DefaultReference)
	}
	r, err := name.ParseReference(ref)
	if err == nil && slices.ContainsFunc(strings.Split(r.Context().Name(), "/"), isDots) {
		err = errors.New("a component is empty or made of dots")
	}
	if err != nil {
		return "", fmt.Errorf("%w: %q: %w", ErrInvalidReference, ref, err)
	}
	return canonicalName(r), nil
}

// Pinned is the name of an image together with its digest: what it was made
// from, for ever, and a reference that finds it again.
func (i Image) Pinned() string {
	repository, _, _ := strings.Cut(i.Reference, "@")
	return repository + "@" + i.Digest
}

// canonicalName spells the default registry the way users do.
func canonicalName(r name.Reference) string {
	full := r.Name()
	if rest, ok := strings.CutPrefix(full, name.DefaultRegistry+"/"); ok {
		return strings.TrimPrefix(name.DefaultRegistry, "index.") + "/" + rest
	}
	return full
}

func isDots(s string) bool { return strings.Trim(s, ".") == "" }

func isDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, digestPrefix)
	if !ok || len(hex) != 64 {
		return false
	}
	return strings.Trim(hex, "0123456789abcdef") == ""
}
