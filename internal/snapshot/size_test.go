package snapshot

import (
	"strings"
	"testing"
)

func TestSize(t *testing.T) {
	s := newStory(t)
	check := func(want int64) {
		t.Helper()
		if got, err := s.s.Size(s.layers); got != want || err != nil {
			t.Errorf("%d bytes, want %d: %v", got, want, err)
		}
	}
	check(0)
	s.mkdir("/d")
	s.file("/d/small", "x")
	s.file("/d/large", strings.Repeat("y", sparseFrom+1))
	s.link("/d/small", "/again")
	s.save()
	check(blockSize + sparseFrom + blockSize)
	s.w.begin()
	s.w.remove("/d/large")
	s.file("/d/empty", "")
	s.save()
	check(blockSize)
}
