package node_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/node"
)

// listing prints, one line a file, everything that a file has: type and mode,
// owner, time, what it is linked with, attributes, content.
const listing = `
import hashlib, os, stat, sys
first = {}
def line(p):
    st = os.lstat(p)
    f = [p, oct(st.st_mode), st.st_uid, st.st_gid, st.st_mtime_ns, st.st_nlink if not stat.S_ISDIR(st.st_mode) else '-']
    if not stat.S_ISDIR(st.st_mode):
        f.append('=' + first.setdefault((st.st_dev, st.st_ino), p))
    if stat.S_ISLNK(st.st_mode):
        f.append('-> ' + os.readlink(p))
    elif stat.S_ISREG(st.st_mode):
        h = hashlib.sha256()
        with open(p, 'rb') as r:
            while b := r.read(1 << 20):
                h.update(b)
        f += [st.st_size, h.hexdigest()[:16]]
    elif stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode):
        f.append('%d:%d' % (os.major(st.st_rdev), os.minor(st.st_rdev)))
    if not stat.S_ISLNK(st.st_mode):
        for x in sorted(os.listxattr(p)):
            f.append('%s=%s' % (x, os.getxattr(p, x).hex()))
    print(*map(repr, f))
def walk(p):
    line(p)
    if stat.S_ISDIR(os.lstat(p).st_mode):
        for n in sorted(os.listdir(p)):
            walk(os.path.join(p, n))
for p in sys.argv[1:]:
    if os.path.lexists(p):
        walk(p)
    else:
        print(repr(p), 'is not there')
`

// shell runs a script as root, which must succeed.
func shell(t testing.TB, m node.Machine, img image.Image, argv ...string) string {
	t.Helper()
	commands++
	img.Config.User = image.User{}
	img.Config.WorkingDir = "/"
	out, errs, code := run(t, m, img, "cmd"+strconv.Itoa(commands), argv...)
	if code != 0 {
		t.Fatalf("%q ended with %d: %s", argv, code, errs)
	}
	return out
}

var commands int

// saved is a sandbox over its generations.
type saved struct {
	t      testing.TB
	n      node.Node
	img    image.Image
	layers []image.Layer
	drives []node.Drive
	m      node.Machine
}

func newSaved(t testing.TB, warm int) *saved {
	n, img := newNode(t, warm)
	s := &saved{t: t, n: n, img: img}
	s.start()
	return s
}

func (s *saved) start() {
	s.t.Helper()
	sp := spec(s.img)
	sp.Layers, sp.Drives = s.layers, s.drives
	m, err := s.n.Start(s.t.Context(), sp)
	if err != nil {
		s.t.Fatal(err)
	}
	s.m = m
}

// stop saves and ends the machine; the next one has one layer more.
func (s *saved) stop() bool {
	s.t.Helper()
	saved, err := s.m.SaveDisk(s.t.Context(), node.Save{})
	if err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-s.m.Done():
	default:
		s.t.Fatal("the machine is alive after SaveDisk")
	}
	for i, l := range saved.Drives {
		if l != nil {
			s.drives[i].Layers = append(s.drives[i].Layers, *l)
		}
	}
	if saved.Layer != nil {
		s.layers = append(s.layers, *saved.Layer)
	}
	return saved.Layer != nil
}

func (s *saved) sh(script string) string {
	s.t.Helper()
	return shell(s.t, s.m, s.img, "sh", "-ec", script)
}

func (s *saved) python(script string, args ...string) string {
	s.t.Helper()
	return shell(s.t, s.m, s.img, append([]string{"python3", "-c", script}, args...)...)
}

// again stops and resumes, and holds the trees against each other.
func (s *saved) again(paths ...string) {
	s.t.Helper()
	before := s.python(listing, paths...)
	if !s.stop() {
		s.t.Fatal("nothing was saved")
	}
	s.start()
	after := s.python(listing, paths...)
	if d := cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")); d != "" {
		s.t.Fatalf("generation %d is another:\n%s", len(s.layers), d)
	}
}

func TestSaveAndResume(t *testing.T) {
	s := newSaved(t, 0)
	s.sh(`mkdir -p /vercel/sandbox/a/b; echo one >/vercel/sandbox/a/1; echo two >/tmp/2; rm /etc/passwd-; echo x >>/etc/profile
		chmod 4751 /vercel/sandbox/a/1; ln /vercel/sandbox/a/1 /vercel/sandbox/a/b/hard; ln -s ../1 /vercel/sandbox/a/b/soft`)
	s.again("/vercel", "/tmp", "/etc", "/root")
	s.sh(`echo three >>/vercel/sandbox/a/b/new; rm -r /vercel/sandbox/a/1`)
	s.again("/vercel", "/tmp", "/etc", "/root")
	if err := s.m.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestSaveUntouched(t *testing.T) {
	s := newSaved(t, 0)
	s.sh("true")
	if s.stop() {
		t.Error("a machine in which nothing was written has a layer")
	}
	s.start()
	s.sh("echo 1 >/root/f")
	if !s.stop() {
		t.Fatal("nothing was saved")
	}
	s.start()
	s.sh("true")
	if s.stop() {
		t.Error("a resumed machine in which nothing was written has a layer")
	}
	if _, err := s.m.SaveDisk(t.Context(), node.Save{GoOn: true}); err == nil {
		t.Error("an ended machine was saved")
	}
}
