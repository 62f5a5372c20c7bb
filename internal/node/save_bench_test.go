package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/node"
)

// fill makes so many small files of about 3 KB, 25 in a directory.
const fill = `
import os, sys
n = int(sys.argv[1])
b = os.urandom(1 << 20)
for i in range(n):
    d = '/vercel/sandbox/f/%d' % (i // 25)
    if i % 25 == 0:
        os.makedirs(d)
    k = i * 7919 % 1000000
    f = os.open('%s/%d' % (d, i), os.O_CREAT | os.O_WRONLY)
    os.write(f, b[k:k + 2048 + k % 2048])
    os.close(f)
`

var loads = []struct {
	name string
	make func(s *saved)
}{
	{"10", func(s *saved) { s.python(fill, "10") }},
	{"5k", func(s *saved) { s.python(fill, "5000") }},
	{"100k", func(s *saved) { s.python(fill, "100000") }},
	{"1GB", func(s *saved) { s.sh("for i in 1 2 3 4; do head -c 256M /dev/urandom; done >/root/big") }},
}

// BenchmarkSave measures the saving of a running machine's disk: a stop takes
// that and the machine's end. It reports where the time goes.
func BenchmarkSave(b *testing.B) {
	for _, l := range loads {
		b.Run(l.name, func(b *testing.B) {
			s := newSaved(b, 0)
			l.make(s)
			for b.Loop() {
				if saved, err := s.m.SaveDisk(b.Context(), node.Save{GoOn: true}); saved.Layer == nil || err != nil {
					b.Fatal(saved, err)
				}
			}
		})
	}
}

// BenchmarkStopAndResume measures the last stop of a machine, and how long the
// next one takes to be ready for a command: from the pool of bare machines.
func BenchmarkStopAndResume(b *testing.B) {
	for _, l := range loads {
		b.Run(l.name, func(b *testing.B) {
			s := newSaved(b, 1)
			l.make(s)
			start := time.Now()
			s.stop()
			b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "ms/stop")
			var claims, firsts time.Duration
			for b.Loop() {
				awaitBare(b, s)
				start := time.Now()
				s.start()
				claims += time.Since(start)
				start = time.Now()
				s.sh("true")
				firsts += time.Since(start)
				if err := s.m.Stop(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(claims.Microseconds())/1000/float64(b.N), "ms/resume")
			b.ReportMetric(float64(firsts.Microseconds())/1000/float64(b.N), "ms/first-command")
		})
	}
}

// awaitBare waits until a bare machine waits.
func awaitBare(b *testing.B, s *saved) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, p := range s.n.Status().Pool {
			if p.Image == "(bare)" && p.Ready > 0 && p.Starting == 0 {
				return
			}
		}
	}
	b.Fatal("no bare machine")
}

// BenchmarkMerge measures the merging of five layers of 1000 files each.
func BenchmarkMerge(b *testing.B) {
	s := newSaved(b, 0)
	for i := range 5 {
		s.python(fill, "1000")
		s.sh(fmt.Sprintf("mv /vercel/sandbox/f /vercel/sandbox/g%d", i))
		s.stop()
		s.start()
	}
	var l image.Layer
	for b.Loop() {
		var err error
		if l, err = s.n.MergeLayers(b.Context(), s.img.Layers, s.layers); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(l.Size)
}
