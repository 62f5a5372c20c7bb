package scratch

import (
	"errors"
	"math"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReserve(t *testing.T) {
	var none *Reserve
	if err := none.Check(); err != nil {
		t.Error(err)
	}
	if err := (&Reserve{Dir: t.TempDir()}).Check(); err != nil {
		t.Error(err)
	}
	all := &Reserve{Dir: t.TempDir(), Bytes: math.MaxInt64 / 2}
	if err := all.Check(); !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
	if _, ok := errors.AsType[*ErrReserve](all.Check()); !ok {
		t.Error("it is no ErrReserve")
	}
	if err := (&Reserve{Dir: "/nonexistent"}).Check(); err == nil {
		t.Error("a directory that is not there has room")
	}
}
