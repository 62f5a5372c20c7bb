package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/glovebox-dev/glovebox/internal/guest/wire"
)

// ErrSuperseded: a newer Attach to the same command took over.
var ErrSuperseded = errors.New("another reader took over the command's log")

// ErrCursor: the agent no longer has, or does not have yet, the log's bytes
// from the cursor on.
var ErrCursor = errors.New("the command's log has no such position")

// failureError is the error that an agent's failure stands for.
func failureError(f *wire.Failure) error {
	switch f.Code {
	case wire.CodeErrno:
		err := guestErrno(f.Errno)
		if f.Path != "" {
			return &fs.PathError{Op: f.Text, Path: f.Path, Err: err}
		}
		return fmt.Errorf("%s: %w", f.Text, err)
	case wire.CodeNoDir:
		return fmt.Errorf("%w: %s: %w", ErrNoDir, f.Text, guestErrno(f.Errno))
	case wire.CodeNoCommand:
		return ErrNoCommand
	case wire.CodeFinished:
		return ErrFinished
	case wire.CodeNotRegular:
		return ErrNotRegular
	case wire.CodeSuperseded:
		return ErrSuperseded
	case wire.CodeCursor:
		return ErrCursor
	case wire.CodeNotAssembled:
		return errors.New("the machine's root is not assembled")
	case wire.CodeLimit:
		return fmt.Errorf("the sandbox's limit is reached: %s", f.Text)
	}
	return fmt.Errorf("the agent refused: %s", f.Text)
}

// guestErrno is an errno as an error. The guest's numbers are Linux's, as the
// host's are.
func guestErrno(n uint16) error {
	switch e := syscall.Errno(n); {
	case e == syscall.ENOSPC || e == syscall.EDQUOT:
		return ErrNoSpace
	case n == 0 || n > 4095:
		return syscall.EIO
	default:
		return e
	}
}

// pathError puts the guest's path into an error of a file call.
func pathError(op, path string, err error) error {
	var errno syscall.Errno
	switch {
	case err == nil:
		return nil
	case errors.As(err, &errno):
		return &fs.PathError{Op: op, Path: path, Err: errno}
	case errors.Is(err, ErrNotRegular), errors.Is(err, ErrNoSpace):
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return fmt.Errorf("%s %s: %w", op, path, err)
}
