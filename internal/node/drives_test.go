package node_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/node"
)

// TestDrives: what a drive holds comes back exactly, in another machine and at
// another place; a read-only one cannot be written, and a full one says so.
func TestDrives(t *testing.T) {
	s := newSaved(t, 0)
	if err := s.m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.drives = []node.Drive{{Path: "/data", MaxBytes: 8 << 20}, {Path: "/mnt/more/b", MaxBytes: 1 << 20}}
	s.start()
	const tree = `stat -c '%u:%g %a' /data
		mkdir -p /data/a/b; echo one >/data/a/1; chmod 4751 /data/a/1; ln /data/a/1 /data/a/b/hard; ln -s ../1 /data/a/b/soft
		mknod /data/null c 1 3; mkfifo /data/fifo; chown 12:34 /data/fifo; touch -d @1000000.5 /data/a/1 /data/a
		echo more >/mnt/more/b/f`
	if got := s.sh(tree); got != "1000:1000 755\n" {
		t.Errorf("the root of a new drive is %q", got)
	}
	s.python(`import os; os.setxattr('/data/a/1', 'user.k', b'v'); os.setxattr('/data/a', 'user.d', b'\0\1')`)
	before := s.python(listing, "/data", "/mnt/more/b")
	if s.stop() {
		t.Error("what was written to drives alone has changed the root")
	}
	s.start()
	same := func(what, after string) {
		t.Helper()
		if d := cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")); d != "" {
			t.Fatalf("%s: it is another:\n%s", what, d)
		}
	}
	same("resumed", s.python(listing, "/data", "/mnt/more/b"))
	s.sh("rm /data/a/b/hard /data/null; mv /data/a /data/c; echo x >/data/new; chmod 700 /data")
	before = s.python(listing, "/data", "/mnt/more/b")
	if s.stop() {
		t.Error("what was written to drives alone has changed the root")
	}
	s.start()
	same("resumed twice", s.python(listing, "/data", "/mnt/more/b"))
	s.sh("dd if=/dev/zero of=/data/big bs=1M count=20 2>/tmp/err && exit 1; grep 'No space left' /tmp/err; rm /data/big; echo fits >/data/new")
	s.stop()

	// As a view, elsewhere, beside one that is new.
	s.drives = []node.Drive{{Path: "/view", MaxBytes: 1 << 30, ReadOnly: true, Layers: s.drives[0].Layers}, {Path: "/new", MaxBytes: 1 << 20}}
	s.start()
	s.sh(`grep fits /view/new; [ ! -e /view/big ]; ! touch /view/x; ! rm /view/new; ! mount -o remount,rw /view; ls -A /new`)
	s.stop()
	if n := len(s.drives[0].Layers); n != 3 {
		t.Errorf("a drive that was only read has %d layers", n)
	}
}
