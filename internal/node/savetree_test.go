package node_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/node"
)

// everything makes one of each kind of file, in a tree and in directories of
// the image.
const everything = `
import os, socket, stat, struct, sys
d = '/vercel/sandbox/all'
os.makedirs(d + '/dir/deep/er')
os.makedirs(d + '/empty')
def put(p, b=b'x', mode=None):
    with open(p, 'wb') as f:
        f.write(b)
    if mode is not None:
        os.chmod(p, mode)
put(d + '/plain', b'hello')
put(d + '/none', b'')
put(d + '/page', b'p' * 4096)
put(d + '/big', os.urandom(3 << 20))
put(d + '/setuid', b's', 0o4755)
put(d + '/setgid', b's', 0o2755)
put(d + '/unreadable', b's', 0)
put(d + '/\xff\xfe name \n', b'odd')
put(d + '/' + 'n' * 255, b'long')
os.chmod(d + '/dir', 0o1777)
os.chmod(d + '/dir/deep', 0o2750)
os.chown(d + '/dir/deep', 1234, 4321)
os.chown(d + '/plain', 65534, 4294967294)
os.link(d + '/plain', d + '/dir/hard')
os.link(d + '/plain', '/tmp/hard')
os.symlink('../plain', d + '/dir/soft')
os.symlink('t' * 3000, d + '/dir/softlong')
os.symlink('nowhere', d + '/dangling')
os.link(d + '/dangling', d + '/dangling2', follow_symlinks=False)
os.lchown(d + '/dangling', 7, 8)
os.mkfifo(d + '/fifo', 0o640)
s = socket.socket(socket.AF_UNIX)
s.bind(d + '/socket')
os.chmod(d + '/socket', 0o711)
os.mknod(d + '/null', 0o666 | stat.S_IFCHR, os.makedev(1, 3))
os.chmod(d + '/null', 0o666)
os.mknod(d + '/loop', 0o660 | stat.S_IFBLK, os.makedev(7, 300))
os.chown(d + '/loop', 0, 6)
with open(d + '/sparse', 'wb') as f:
    f.truncate(1 << 25)
    f.seek(7 << 20)
    f.write(b'island')
os.setxattr(d + '/plain', 'user.text', b'value')
os.setxattr(d + '/plain', 'user.empty', b'')
os.setxattr(d + '/plain', 'user.bin', bytes(range(256)))
os.setxattr(d + '/plain', 'user.a=b', b'1')
os.setxattr(d + '/dir', 'user.ondir', b'v')
os.setxattr(d + '/big', 'security.capability', struct.pack('<IIIII', 0x02000001, 1 << 10, 0, 0, 0))
acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in
    [(1, 7, 0xffffffff), (2, 5, 1000), (4, 5, 0xffffffff), (16, 5, 0xffffffff), (32, 4, 0xffffffff)])
os.setxattr(d + '/page', 'system.posix_acl_access', acl)
os.setxattr(d + '/empty', 'system.posix_acl_default', acl)
os.setxattr('/etc/shells' if os.path.exists('/etc/shells') else '/etc/passwd', 'user.image', b'changed')
os.chmod('/usr', 0o751)
os.chmod('/', 0o751)
for p, ns in ((d + '/plain', 123456789), (d + '/dangling', 1), (d + '/setuid', -10**18 - 7), (d + '/dir', 10**18 + 7), (d + '/null', 5 * 10**17 + 3), (d + '/socket', 4 * 10**17 + 9)):
    os.utime(p, ns=(ns, ns), follow_symlinks=False)
os.utime('/usr', ns=(10**18, 10**18))
`

var everywhere = []string{"/vercel", "/tmp", "/etc", "/root", "/home", "/var", "/srv", "/opt"}

// top lists files themselves, not what is in them.
const top = listing + "\nfor p in ('/', '/usr', '/usr/share', '/usr/bin', '/var', '/run'): line(p)\n"

func (s *saved) againAll() {
	s.t.Helper()
	before := s.python(top)
	s.again(everywhere...)
	if after := s.python(top); after != before {
		s.t.Fatalf("directories of generation %d are others:\n%s\nthey were:\n%s", len(s.layers), after, before)
	}
}

func TestSaveEverything(t *testing.T) {
	s := newSaved(t, 0)
	s.python(everything)
	s.againAll()
	// What lasts without a change needs no other layer.
	if s.stop() {
		t.Error("a tree of everything, only resumed, is saved again")
	}
	s.start()
	s.sh(`cd /vercel/sandbox/all; rm null; echo y >>page; chmod 600 plain; mv dir moved; rm fifo socket; echo z >fifo; setfattr -x user.ondir moved 2>/dev/null || python3 -c 'import os; os.removexattr("moved", "user.ondir")'`)
	s.againAll()
	if s.stop() {
		t.Error("it is saved again")
	}
	s.start()
	s.sh(`rm -rf /vercel/sandbox/all; mkdir /vercel/sandbox/all; rm -f /tmp/hard`)
	s.againAll()
	if got := s.sh("ls -A /vercel/sandbox/all"); got != "" {
		t.Errorf("in the new directory is %q", got)
	}
}

func TestSaveGenerations(t *testing.T) {
	s := newSaved(t, 0)
	for i := range 5 {
		s.sh(fmt.Sprintf(`cd /vercel/sandbox; mkdir -p g; echo %d >>log; echo %d >g/%d; mkdir -p d%d/s; echo x >d%d/s/f; ln log g/hard%d
			[ %d = 0 ] || { rm -r d%d; mv g/%d g/moved%d; rm g/hard%d; }`, i, i, i, i, i, i, i, i-1, i-1, i, i-1))
		s.again("/vercel", "/tmp", "/etc", "/root")
	}
	if got := s.sh("cat /vercel/sandbox/log; ls /vercel/sandbox"); got != "0\n1\n2\n3\n4\nd4\ng\nlog\n" {
		t.Errorf("after five generations: %q", got)
	}
}

// A directory of the image that is removed and made anew holds what was put
// there since, in every generation; snapshots of hosted sandboxes have mixed
// the two.
func TestSaveReplacedDirectories(t *testing.T) {
	s := newSaved(t, 0)
	s.sh(`rm -rf /usr/share/doc && mkdir /usr/share/doc && echo m >/usr/share/doc/marker
		mv /usr/lib/python3 /root/python3 2>/dev/null || mv /usr/share/perl5 /root/python3
		rm -rf /etc/cron.d /usr/share/man; echo file >/usr/share/man; mkdir -p /usr/share/doc2/x`)
	paths := []string{"/usr/share", "/usr/lib/python3", "/root", "/etc"}
	s.again(paths...)
	if got := s.sh("ls -A /usr/share/doc"); got != "marker\n" {
		t.Errorf("the directory holds %q", got)
	}
	s.sh(`rm -rf /usr/share/doc && mkdir /usr/share/doc && echo n >/usr/share/doc/other; rm /usr/share/man; mkdir /usr/share/man; echo 1 >/usr/share/man/1; rmdir /usr/share/doc2/x; mv /root/python3 /root/q`)
	s.again(paths...)
	if got := s.sh("ls -A /usr/share/doc /usr/share/man"); got != "/usr/share/doc:\nother\n\n/usr/share/man:\n1\n" {
		t.Errorf("the directories hold %q", got)
	}
	s.sh(`rm -rf /usr/share/doc /root/q`)
	s.again(paths...)
}

func TestSaveMany(t *testing.T) {
	s := newSaved(t, 0)
	s.python(`
import os, random
r = random.Random(1)
for i in range(5000):
    p = '/vercel/sandbox/many/%d/%d' % (i // 25, i)
    os.makedirs(os.path.dirname(p), exist_ok=True)
    with open(p, 'wb') as f:
        f.write(r.randbytes(r.randrange(2048, 4096)))
`)
	s.again("/vercel", "/root")
	s.sh(`cd /vercel/sandbox/many; rm -r 1 2 3; find . -type f -name '*7' -delete; echo changed >0/0`)
	s.again("/vercel", "/root")
}

// A file of nothing costs nothing.
func TestSaveSparse(t *testing.T) {
	s := newSaved(t, 0)
	s.sh(`cd /root; truncate -s 1G a; truncate -s 900G b; echo island | dd of=a bs=1M seek=700 conv=notrunc status=none`)
	start := time.Now()
	if !s.stop() {
		t.Fatal("nothing was saved")
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}
	var st unix.Stat_t
	if err := unix.Stat(s.layers[0].Path, &st); err != nil || st.Blocks > 2048 {
		t.Errorf("the layer takes up %d KiB on disk, %v", st.Blocks/2, err)
	}
	s.start()
	if got := s.sh(`cd /root; stat -c %s a b; dd if=a bs=1M skip=700 count=1 status=none | tr -d '\0'; tail -c 5 b | od -An -c`); got != "1073741824\n966367641600\nisland\n  \\0  \\0  \\0  \\0  \\0\n" {
		t.Errorf("%q", got)
	}
	// The next layer, and one merged of both, have the holes too.
	s.sh("echo 1 >/root/c")
	s.stop()
	l, err := s.n.MergeLayers(t.Context(), s.img.Layers, s.layers)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat(l.Path, &st); err != nil || st.Blocks > 2048 {
		t.Errorf("the merged layer takes up %d KiB on disk, %v", st.Blocks/2, err)
	}
}

// Attributes of many files are more than one message holds.
func TestSaveManyXattrs(t *testing.T) {
	s := newSaved(t, 0)
	s.python(`
import os
os.mkdir('/vercel/sandbox/x')
for i in range(10000):
    p = '/vercel/sandbox/x/%d' % i
    open(p, 'w').close()
    os.setxattr(p, 'user.note', b'v' * 1000)
`)
	s.again("/vercel")
	if s.stop() {
		t.Error("without a change there is another layer")
	}
}

// A guest that goes on keeps its processes, and what was saved is how things
// were at one moment.
func TestSaveGoOn(t *testing.T) {
	s := newSaved(t, 0)
	s.sh(`cat >/root/w.py <<'END'
import os
a, b = os.open('/root/a', os.O_CREAT | os.O_RDWR), os.open('/root/b', os.O_CREAT | os.O_RDWR)
for i in range(10**9):
    os.pwrite(a, b'%020d' % i, 0)
    os.pwrite(b, b'%020d' % i, 0)
END
	setsid python3 /root/w.py >/dev/null 2>&1 </dev/null & echo $! >/root/pid
	while [ ! -s /root/b ]; do :; done`)
	first := s.m
	for range 3 {
		saved, err := first.SaveDisk(t.Context(), node.Save{GoOn: true})
		if err != nil || saved.Layer == nil {
			t.Fatal(saved, err)
		}
		s.layers = append(s.layers[:0], *saved.Layer)
		s.start()
		got := strings.Fields(s.sh("cat /root/a; echo; cat /root/b"))
		a, b := number(t, got[0]), number(t, got[1])
		if a != b && a != b+1 {
			t.Errorf("the two files hold %d and %d", a, b)
		}
		if err := s.m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.m = first
		after := number(t, strings.Fields(s.sh("sleep 0.2; cat /root/a; echo; kill -0 $(cat /root/pid)"))[0])
		if after <= a {
			t.Errorf("the writer is at %d, as it was in the snapshot (%d)", after, a)
		}
	}
}

func number(t *testing.T, s string) (n int) {
	t.Helper()
	if _, err := fmt.Sscanf(s, "%d", &n); err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return n
}

// On a full disk nothing can be saved, and nothing is lost.
func TestSaveOnFullDisk(t *testing.T) {
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=2m"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { // runs when the node is closed
		if err := unix.Unmount(small, 0); err != nil {
			t.Error(err)
		}
	})
	n, img := newNodeAt(t, 0, t.TempDir(), small)
	s := &saved{t: t, n: n, img: img}
	s.start()
	s.sh("head -c 5000000 /dev/urandom >/root/f")
	for _, goOn := range []bool{true, false} {
		saved, err := s.m.SaveDisk(t.Context(), node.Save{GoOn: goOn})
		if saved.Layer != nil || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "disk is full") {
			t.Errorf("go on %v: %v, %v", goOn, saved, err)
		}
		if left, _ := filepath.Glob(filepath.Join(small, "layers", "sha256-*")); len(left) > 0 {
			t.Errorf("left are %q", left)
		}
	}
	if err := unix.Mount("", small, "", unix.MS_REMOUNT, "size=20m"); err != nil {
		t.Fatal(err)
	}
	s.again("/root")
}
