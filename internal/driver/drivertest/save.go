package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

const upper = driver.UpperDir + "/" + driver.UpperTree

// entries lists a disk by path.
func entries(t *testing.T, d driver.Disk) map[string]driver.DiskEntry {
	t.Helper()
	out := map[string]driver.DiskEntry{}
	err := d.Entries(func(e driver.DiskEntry) error {
		if _, ok := out[e.Path]; ok {
			t.Errorf("%q comes twice", e.Path)
		}
		if i := strings.LastIndexByte(e.Path, '/'); e.Path != "" {
			if p, ok := out[e.Path[:max(i, 0)]]; !ok || p.Mode&unix.S_IFMT != unix.S_IFDIR {
				t.Errorf("%q comes before its directory", e.Path)
			}
		}
		out[e.Path] = e
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// saveDisk: everything that a file can have is in what is saved, twice the
// same, and the guest goes on or not as asked.
func saveDisk(t *testing.T, b *bench) {
	m := b.start(t, small("save"))
	b.sh(t, m, "tree", upper)
	for _, goOn := range []bool{true, true, false} {
		called := false
		err := m.SaveDisk(b.ctx, goOn, func(disks []driver.Disk) error {
			called = true
			d := disks[0]
			select {
			case <-m.Done():
				t.Error("it ended before its disk was used")
			default:
			}
			checkTree(t, entries(t, d))
			checkTree(t, entries(t, d))
			d.Done()
			if goOn {
				b.sh(t, m, "true")
			}
			return nil
		})
		if err != nil || !called {
			t.Fatalf("go on %v: %v, use was called: %v", goOn, err, called)
		}
		if goOn {
			b.sh(t, m, "true")
		}
	}
	if err := m.Err(); !errors.Is(err, driver.ErrStopped) {
		t.Errorf("it ended with %v", err)
	}
	err := m.SaveDisk(b.ctx, true, func([]driver.Disk) error { t.Error("an ended machine has a disk"); return nil })
	if !errors.Is(err, driver.ErrStopped) {
		t.Errorf("an ended machine: %v", err)
	}
}

func checkTree(t *testing.T, got map[string]driver.DiskEntry) {
	t.Helper()
	odd := strings.Repeat("\xff", 255)
	for _, w := range []driver.DiskEntry{
		{Path: "", Mode: unix.S_IFDIR | 0o755},
		{Path: "dir", Mode: unix.S_IFDIR | 0o750},
		{Path: "dir/file", Mode: unix.S_IFREG | 0o4711, UID: 12, GID: 34, Size: 7},
		{Path: "hard", Mode: unix.S_IFREG | 0o4711, UID: 12, GID: 34, Size: 7},
		{Path: "soft", Mode: unix.S_IFLNK | 0o777, Target: "dir/file"},
		{Path: "fifo", Mode: unix.S_IFIFO | 0o640},
		{Path: "socket", Mode: unix.S_IFSOCK | 0o755},
		{Path: "device", Mode: unix.S_IFBLK | 0o660, Major: 7, Minor: 5},
		{Path: "gone", Mode: unix.S_IFCHR},
		{Path: "sparse", Mode: unix.S_IFREG | 0o644, Size: 2 << 30},
		{Path: odd, Mode: unix.S_IFREG | 0o644},
	} {
		g, ok := got[w.Path]
		if !ok {
			t.Errorf("%.20q is not there", w.Path)
			continue
		}
		what := func(e driver.DiskEntry) string {
			return fmt.Sprintf("%o %d:%d %d:%d %q %d", e.Mode, e.UID, e.GID, e.Major, e.Minor, e.Target, e.Size)
		}
		if what(g) != what(w) || (g.Content != nil) != (w.Mode&unix.S_IFMT == unix.S_IFREG) {
			t.Errorf("%.20q: %s, want %s", w.Path, what(g), what(w))
		}
		delete(got, w.Path)
		switch w.Path {
		case "dir":
			if len(g.Xattrs) != 2 || string(g.Xattrs["user.binary"]) != "\x00\xff=" || g.Xattrs["user.empty="] == nil {
				t.Errorf("attributes: %q", g.Xattrs)
			}
		case "dir/file", "hard":
			if b, err := io.ReadAll(io.NewSectionReader(g.Content, 0, 100)); string(b) != "content" || err != nil {
				t.Errorf("%s holds %q, %v", w.Path, b, err)
			}
			if !g.ModTime.Equal(time.Unix(1, 23)) {
				t.Errorf("%s was changed at %v", w.Path, g.ModTime)
			}
			if g.Inode == 0 {
				t.Errorf("%s has one name", w.Path)
			}
		case "sparse":
			checkSparse(t, g)
		}
	}
	for p := range got {
		t.Errorf("there is %q too", p)
	}
}

func checkSparse(t *testing.T, e driver.DiskEntry) {
	t.Helper()
	sum := int64(0)
	for _, x := range e.Extents {
		if x.Offset > 1<<30 || x.Offset+x.Length < 1<<30+6 {
			t.Errorf("extent %+v", x)
		}
		sum += x.Length
	}
	if sum == 0 || sum > 1<<21 {
		t.Errorf("the hole is filled with %d bytes", sum)
	}
	b := make([]byte, 10)
	if _, err := e.Content.ReadAt(b, 1<<30-2); err != nil || string(b) != "\x00\x00island\x00\x00" {
		t.Errorf("around the island: %q, %v", b, err)
	}
	if n, err := e.Content.ReadAt(b, 2<<30-4); n != 4 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if _, err := e.Content.ReadAt(b, 2<<30); err != io.EOF {
		t.Errorf("beyond the end: %v", err)
	}
}

// saveDiskFails: whatever goes wrong, the guest goes on.
func saveDiskFails(t *testing.T, b *bench) {
	m := b.start(t, small("save"))
	never := func([]driver.Disk) error { t.Error("there is a disk"); return nil }
	if err := m.SaveDisk(b.ctx, false, never); err == nil {
		t.Error("a root that was never made is saved")
	}
	b.sh(t, m, "tree", upper)
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if err := m.SaveDisk(ctx, false, never); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled save: %v", err)
	}
	b.sh(t, m, "true")
	broken := errors.New("no use")
	for _, goOn := range []bool{true, false} {
		if err := m.SaveDisk(b.ctx, goOn, func([]driver.Disk) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
		b.sh(t, m, "true")
	}
}

// stopWhileSaving: a machine that is stopped while it is frozen ends, and
// what was saved can be read to its end.
func stopWhileSaving(t *testing.T, b *bench) {
	m := b.start(t, small("save"))
	b.sh(t, m, "tree", upper)
	var wg sync.WaitGroup
	defer wg.Wait()
	err := m.SaveDisk(b.ctx, true, func(disks []driver.Disk) error {
		wg.Go(func() { b.stop(t, m) })
		<-m.Done()
		checkTree(t, entries(t, disks[0]))
		return nil
	})
	if err != nil {
		t.Errorf("%v", err)
	}
}
