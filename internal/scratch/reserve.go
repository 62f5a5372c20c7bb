package scratch

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Reserve is room on a file system that is left alone, so that what must be
// written can be. The nil Reserve is none.
type Reserve struct {
	Dir   string
	Bytes int64
}

// ErrReserve: what is free is needed for the reserve. It is an ENOSPC.
type ErrReserve struct{ Free, Reserve int64 }

func (e *ErrReserve) Error() string {
	return fmt.Sprintf("the server's disk has %d MiB free, and %d MiB are kept in reserve: free some space (glovebox prune)", e.Free>>20, e.Reserve>>20)
}

// Is says that it is a full disk.
func (e *ErrReserve) Is(target error) bool { return target == unix.ENOSPC }

// Left is how many bytes may be written until the reserve is touched; not
// positive: none.
func (r *Reserve) Left() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(r.Dir, &st); err != nil {
		return 0, fmt.Errorf("measure the file system of %s: %w", r.Dir, err)
	}
	return int64(st.Bavail)*st.Bsize - r.Bytes, nil
}

// Check fails with an *ErrReserve where nothing more may be written.
func (r *Reserve) Check() error {
	if r == nil {
		return nil
	}
	left, err := r.Left()
	if err == nil && left <= 0 {
		err = &ErrReserve{Free: left + r.Bytes, Reserve: r.Bytes}
	}
	return err
}
