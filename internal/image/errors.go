package image

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/glovebox-dev/glovebox/internal/layer"
)

// Classes of errors; what this package returns wraps one of them where it is
// neither the caller's context nor a failure of the machine.
var (
	ErrNotFound         = errors.New("image not found")
	ErrInvalidReference = errors.New("invalid image reference")
	ErrInUse            = errors.New("image is in use")
	ErrUnauthorized     = errors.New("registry refused access")
	ErrUnavailable      = errors.New("registry cannot be reached")
	ErrNoSpace          = errors.New("no space left on disk")
	ErrMissingTool      = errors.New("host tool is missing")
	// ErrArchive says that an archive or image is broken or not supported.
	ErrArchive = layer.ErrArchive
)

// notFound names the image and the command that brings it here.
func notFound(ref string) error {
	remedy := "glovebox image pull " + ref
	if ref == DefaultReference {
		remedy = "glovebox image build"
	}
	return fmt.Errorf("%w: %s is not on this machine: run %q", ErrNotFound, ref, remedy)
}

// explain adds the class and the remedy to errors of the machine.
func (s *Store) explain(op, object string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w: free some in %s or choose another --data-dir: %w", ErrNoSpace, s.dir, err)
	}
	return fmt.Errorf("%s image %s: %w", op, object, err)
}
