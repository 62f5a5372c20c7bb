package snapshot

import (
	"errors"
	"math"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/scratch"
)

// The host's reserve is only for what would be lost otherwise.
func TestReserve(t *testing.T) {
	s := newStory(t)
	s.s.opts.Reserve = &scratch.Reserve{Dir: s.s.dir, Bytes: math.MaxInt64 / 2}
	s.file("/f", "1")
	src := Source{Disk: s.w, Lowers: s.layers}
	if _, _, err := s.s.Save(t.Context(), src); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "reserve") {
		t.Fatalf("saved into the reserve: %v", err)
	}
	src.UseReserve = true
	l, ok, err := s.s.Save(t.Context(), src)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	s.layers = append(s.layers, l)
	s.check(s.layers)
	if _, err := s.s.Merge(t.Context(), nil, s.layers); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("merged into the reserve: %v", err)
	}
}
