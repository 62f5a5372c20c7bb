package guest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest"
)

var owner = guest.User{UID: 1000, GID: 1000}

// archive makes a tar stream of headers; a file's content is its Linkname
// unless it has a body in bodies.
func archive(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		body := ""
		if h.Typeflag == tar.TypeReg {
			body, h.Linkname = h.Linkname, ""
			h.Size = int64(len(body))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			h.Mode = 0
		} else if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1_700_000_000, 0)
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name, content string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Linkname: content}
}

func write(t testing.TB, c *guest.Conn, dir string, tarball []byte) error {
	t.Helper()
	return c.WriteTar(ctx(t), dir, owner, bytes.NewReader(tarball), nil)
}

func read(t testing.TB, c *guest.Conn, name string) []byte {
	t.Helper()
	r, _, err := c.ReadFile(ctx(t), name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFileSizes(t *testing.T) {
	_, c := assembled(t)
	for _, size := range []int{0, 1, 511, 512, 513, 18431, 18433, 131072, 131073, 1 << 20, 16777217, 100 << 20} {
		data := make([]byte, size)
		_, _ = rand.Read(data)
		tarball := archive(t, file("f", string(data)))
		start := time.Now()
		if err := write(t, c, "/vercel/sandbox", tarball); err != nil {
			t.Fatal(err)
		}
		up := time.Since(start)
		if r := shell(t, c, "sha256sum < /vercel/sandbox/f; stat -c '%s %u %g %a %Y' /vercel/sandbox/f"); r.out !=
			fmt.Sprintf("%x  -\n%d 1000 1000 644 1700000000\n", sha256.Sum256(data), size) {
			t.Errorf("%d bytes: %+v", size, r)
		}
		start = time.Now()
		if !bytes.Equal(read(t, c, "/vercel/sandbox/f"), data) {
			t.Errorf("%d bytes come back differently", size)
		}
		if size > 50<<20 {
			t.Logf("%d MB up in %s, down in %s", size>>20, up, time.Since(start))
		}
	}
}

func TestManyFiles(t *testing.T) {
	_, c := assembled(t)
	var h []*tar.Header
	for i := range 2000 {
		h = append(h, file(fmt.Sprintf("many/d%d/f%d", i%50, i), strings.Repeat("x", 1024)))
	}
	start := time.Now()
	if err := write(t, c, "/vercel/sandbox", archive(t, h...)); err != nil {
		t.Fatal(err)
	}
	t.Logf("2000 files in %s", time.Since(start))
	if r := shell(t, c, "find /vercel/sandbox/many -type f -size 1024c -user 1000 | wc -l; find /vercel/sandbox -name '.glovebox*' | wc -l; stat -c '%u %a' /vercel/sandbox/many/d1"); r.out != "2000\n0\n1000 755\n" {
		t.Errorf("%+v", r)
	}
}

// TestDeepFile: as deep as a path can be, and not a trace of it where its
// archive is broken.
func TestDeepFile(t *testing.T) {
	_, c := assembled(t)
	deep := strings.Repeat("d/", 2000) + "f"
	if err := write(t, c, "/deep", archive(t, file(deep, "down here"))); err != nil {
		t.Fatal(err)
	}
	if got := read(t, c, "/deep/"+deep); string(got) != "down here" {
		t.Errorf("%q", got)
	}
	fails := errors.New("not what was meant")
	err := c.WriteTar(ctx(t), "/deeper", owner, bytes.NewReader(archive(t, file(deep, "x"))), func() error { return fails })
	if !errors.Is(err, fails) {
		t.Fatal(err)
	}
	for {
		_, err := c.Stat(ctx(t), "/deeper")
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil || t.Context().Err() != nil {
			t.Fatalf("what was made is not removed: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestFileNames(t *testing.T) {
	_, c := assembled(t)
	names := []string{"🤣.txt", "あああ/い.txt", "sp ace.txt", "100%25.txt", "a#b?c&d.txt", `q'"uote.txt`, `back\slash.txt`, "\u00e9.txt", "e\u0301.txt", "-rf", ".hidden", "new\nline.txt",
		strings.Repeat("n", 200), strings.Repeat("哈", 33) + "a.txt", strings.Repeat("a", 99), strings.Repeat("a", 100), strings.Repeat("a", 101), strings.Repeat("a", 155), strings.Repeat("a", 255),
		strings.Repeat("d", 60) + "/" + strings.Repeat("e", 60) + "/" + strings.Repeat("f", 60) + "/x.txt",
		"./" + strings.Repeat("0", 26) + "/" + strings.Repeat("0", 13) + strings.Repeat("哈", 8) + "/00000/" + strings.Repeat("0", 15) + "/00",
		strings.Repeat(strings.Repeat("p", 99)+"/", 10) + "deep"}
	for _, format := range []tar.Format{tar.FormatPAX, tar.FormatGNU} {
		var h []*tar.Header
		for _, n := range names {
			e := file(n, n)
			e.Format = format
			h = append(h, e)
		}
		dir := fmt.Sprintf("/vercel/sandbox/%d", format)
		if err := write(t, c, dir, archive(t, h...)); err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if got := read(t, c, path.Join(dir, n)); string(got) != n {
				t.Errorf("%s: %q", n, got)
			}
		}
		if r := shell(t, c, "find "+dir+" -type f -print0 | tr -dc '\\0' | wc -c"); strings.TrimSpace(r.out) != fmt.Sprint(len(names)) {
			t.Errorf("%s files", r.out)
		}
	}
}

func TestArchiveKinds(t *testing.T) {
	_, c := assembled(t)
	shell(t, c, "mkdir -p /vercel/sandbox/old/dir; chmod 700 /vercel/sandbox/old; mkfifo /vercel/sandbox/pipe; ln -s /etc/passwd /vercel/sandbox/link; echo keep > /vercel/sandbox/kept; ln /vercel/sandbox/kept /vercel/sandbox/kept2")
	err := write(t, c, "/vercel/sandbox", archive(t,
		&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}, Format: tar.FormatPAX},
		&tar.Header{Typeflag: tar.TypeDir, Name: "old/", Mode: 0o777},
		&tar.Header{Typeflag: tar.TypeDir, Name: "new/", Mode: 0o511},
		&tar.Header{Typeflag: tar.TypeReg, Name: "new/tool", Linkname: "#!/bin/sh\n", Mode: 0o6755},
		&tar.Header{Typeflag: tar.TypeSymlink, Name: "new/sym", Linkname: "tool"},
		&tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "new/tool"},
		&tar.Header{Typeflag: tar.TypeLink, Name: "kept2", Linkname: "kept"},
		&tar.Header{Typeflag: tar.TypeFifo, Name: "fifo", Mode: 0o600},
		&tar.Header{Typeflag: tar.TypeSymlink, Name: "way", Linkname: "new"},
		file("way/through", "through"),
		file("pipe", "no pipe"), file("link", "no link"),
		file("twice", "one"), file("twice", "two"),
		file("/absolute", "below"), file("../../dots", "inside"), file("./x/../y", "clean"),
	))
	if err != nil {
		t.Fatal(err)
	}
	r := shell(t, c, `cd /vercel/sandbox; stat -c '%n %F %a %u' old new new/tool fifo pipe link; readlink new/sym way; [ hard -ef new/tool ] && echo same; [ kept -ef kept2 ] && echo kept
		cat new/through pipe link twice absolute /dots y; cat /etc/passwd | head -c 5; stat -c %Y new new/sym; find /vercel -name '.glovebox*'`)
	want := `old directory 700 0
new directory 511 1000
new/tool regular file 6755 1000
fifo fifo 600 1000
pipe regular file 644 1000
link regular file 644 1000
tool
new
same
kept
throughno pipeno linktwobelowinsidecleanroot:1700000000
1700000000
`
	if r.out != want {
		t.Errorf("got\n%s\nwant\n%s\n%s", r.out, want, r.err)
	}
}

func TestArchiveRefused(t *testing.T) {
	_, c := assembled(t)
	shell(t, c, "mkdir /vercel/sandbox/dir; echo content > /vercel/sandbox/file; echo before > /vercel/sandbox/a")
	whole := archive(t, file("a", "after"), file("sub/b", strings.Repeat("b", 100_000)))
	refused := errors.New("refused")
	for _, tt := range []struct {
		name string
		body []byte
		ver  func() error
		want error
	}{
		{"over a directory", archive(t, file("a", "after"), file("dir", "x")), nil, syscall.EISDIR},
		{"below a file", archive(t, file("a", "after"), file("file/x", "x")), nil, syscall.ENOTDIR},
		{"directory over a file", archive(t, file("a", "after"), &tar.Header{Typeflag: tar.TypeDir, Name: "file"}), nil, syscall.ENOTDIR},
		{"link to nothing", archive(t, file("a", "after"), &tar.Header{Typeflag: tar.TypeLink, Name: "l", Linkname: "nothing"}), nil, fs.ErrNotExist},
		{"cut in a file", whole[:50_000], nil, guest.ErrArchive},
		{"cut in a header", whole[:1300], nil, guest.ErrArchive},
		{"no archive", bytes.Repeat([]byte("junk "), 1000), nil, guest.ErrArchive},
		{"device", archive(t, file("a", "after"), &tar.Header{Typeflag: tar.TypeChar, Name: "dev"}), nil, guest.ErrArchive},
		{"not verified", whole, func() error { return refused }, refused},
		{"name too long", archive(t, file("a", "after"), file("new/"+strings.Repeat("x", 256), "")), nil, syscall.ENAMETOOLONG},
	} {
		err := c.WriteTar(ctx(t), "/vercel/sandbox", owner, bytes.NewReader(tt.body), tt.ver)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	// Undoing goes on behind the answer.
	r := shell(t, c, `cd /vercel/sandbox; for i in $(seq 100); do [ -z "$(find . -name '.glovebox*')" ] && [ ! -e sub ] && break; sleep 0.05; done; find . | sort; cat a file`)
	if r.out != ".\n./a\n./dir\n./file\nbefore\ncontent\n" {
		t.Errorf("after the refusals: %s", r.out)
	}
}

func TestArchiveReaderFails(t *testing.T) {
	_, c := assembled(t)
	broken := errors.New("broken upload")
	whole := archive(t, file("a", strings.Repeat("a", 1<<20)))
	err := c.WriteTar(ctx(t), "/tmp", owner, io.MultiReader(bytes.NewReader(whole[:1<<19]), failing{broken}), nil)
	if !errors.Is(err, broken) {
		t.Errorf("in a file: %v", err)
	}
	err = c.WriteTar(ctx(t), "/tmp", owner, io.MultiReader(bytes.NewReader(whole), failing{broken}), nil)
	if !errors.Is(err, broken) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := c.Stat(ctx(t), "/tmp/a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestDiskFull(t *testing.T) {
	_, c := bare(t, 16)
	if err := c.Assemble(ctx(t), guest.Assembly{Layers: 1, Hostname: "h"}); err != nil {
		t.Fatal(err)
	}
	err := write(t, c, "/tmp", archive(t, file("big", strings.Repeat("x", 20<<20))))
	if !errors.Is(err, guest.ErrNoSpace) {
		t.Errorf("write: %v", err)
	}
	r := shell(t, c, "for i in $(seq 100); do ls -A /tmp | grep -q glovebox || break; sleep 0.05; done; echo fits > /tmp/fits && cat /tmp/fits")
	if r.out != "fits\n" {
		t.Errorf("after it: %+v", r)
	}
}

func TestReadFile(t *testing.T) {
	_, c := assembled(t)
	shell(t, c, "mkfifo /tmp/p; ln -s /dev/zero /tmp/z; ln -s /tmp/t /tmp/l; echo text > /tmp/t; touch /tmp/empty; ln -s loop /tmp/loop")
	for name, want := range map[string]error{
		"/tmp/p": guest.ErrNotRegular, "/tmp/z": guest.ErrNotRegular, "/dev/zero": guest.ErrNotRegular, "/tmp": guest.ErrNotRegular,
		"/tmp/none": fs.ErrNotExist, "/tmp/t/x": syscall.ENOTDIR, "/tmp/loop": syscall.ELOOP,
	} {
		_, _, err := c.ReadFile(ctx(t), name)
		var pe *fs.PathError
		if !errors.Is(err, want) || !errors.As(err, &pe) || pe.Path != name {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if _, _, err := c.ReadFile(ctx(t), "relative"); err == nil {
		t.Error("a relative path was read")
	}
	if b := read(t, c, "/proc/version"); !bytes.HasPrefix(b, []byte("Linux version")) {
		t.Errorf("/proc/version: %q", b)
	}
	if b := read(t, c, "/tmp/l"); string(b) != "text\n" {
		t.Errorf("through a symlink: %q", b)
	}
	if b := read(t, c, "/tmp/empty"); len(b) != 0 {
		t.Errorf("empty: %q", b)
	}
}

// Files that are read slowly, or not at all, hold up nobody.
func TestSlowFileReaders(t *testing.T) {
	_, c := assembled(t)
	shell(t, c, "head -c 20000000 /dev/zero > /tmp/big")
	var idle []io.ReadCloser
	for range 20 {
		r, info, err := c.ReadFile(ctx(t), "/tmp/big")
		if err != nil || info.Size != 20_000_000 {
			t.Fatalf("%+v %v", info, err)
		}
		idle = append(idle, r)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if n := len(read(t, c, "/tmp/big")); n != 20_000_000 {
				t.Errorf("%d bytes", n)
			}
		}()
	}
	wg.Wait()
	if r := shell(t, c, "echo ok"); r.out != "ok\n" {
		t.Errorf("%+v", r)
	}
	for i, r := range idle {
		if i%2 == 0 {
			n, err := io.Copy(io.Discard, r)
			if n != 20_000_000 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		}
		r.Close()
	}
	for range 400 { // more than may be open at once: Close frees
		r, _, err := c.ReadFile(ctx(t), "/tmp/big")
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
}

func TestStatAndMkdir(t *testing.T) {
	_, c := assembled(t)
	if err := c.Mkdir(ctx(t), "/tmp/d", owner); err != nil {
		t.Fatal(err)
	}
	st, err := c.Stat(ctx(t), "/tmp/d")
	if err != nil || st.Mode != fs.ModeDir|0o755 || st.UID != 1000 || st.GID != 1000 || time.Since(st.ModTime) > time.Minute {
		t.Errorf("%+v %v", st, err)
	}
	if err := c.Mkdir(ctx(t), "/tmp/d", owner); !errors.Is(err, fs.ErrExist) {
		t.Errorf("again: %v", err)
	}
	if err := c.Mkdir(ctx(t), "/tmp/no/d", owner); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no parent: %v", err)
	}
	shell(t, c, "echo x > /tmp/f; chmod 4711 /tmp/f; mkfifo /tmp/p")
	if st, err := c.Stat(ctx(t), "/tmp/f"); err != nil || st.Mode != fs.ModeSetuid|0o711 || st.Size != 2 {
		t.Errorf("%+v %v", st, err)
	}
	if st, err := c.Stat(ctx(t), "/tmp/p"); err != nil || st.Mode&fs.ModeNamedPipe == 0 {
		t.Errorf("%+v %v", st, err)
	}
	if st, err := c.Stat(ctx(t), "/dev/null"); err != nil || st.Mode&fs.ModeCharDevice == 0 {
		t.Errorf("%+v %v", st, err)
	}
}

// A transaction whose session ends leaves nothing behind.
func TestSessionEndsInTransaction(t *testing.T) {
	g, c := assembled(t)
	whole := archive(t, file("gone/a", strings.Repeat("a", 1<<20)))
	hold := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- c.WriteTar(context.Background(), "/tmp", owner, io.MultiReader(bytes.NewReader(whole[:1<<19]), waiting{hold}), nil)
	}()
	c2 := connect(t, g)
	if r := shell(t, c2, "for i in $(seq 100); do [ -d /tmp/gone ] && break; sleep 0.05; done; ls -A /tmp/gone | wc -l"); r.out != "1\n" {
		t.Errorf("%+v", r)
	}
	c.Close()
	close(hold)
	if err := <-done; err == nil {
		t.Error("no error")
	}
	if r := shell(t, c2, "for i in $(seq 100); do [ -d /tmp/gone ] || break; sleep 0.05; done; ls -d /tmp/gone 2>&1"); !strings.Contains(r.out, "No such file") {
		t.Errorf("%+v", r)
	}
}

type waiting struct{ until chan struct{} }

func (w waiting) Read([]byte) (int, error) { <-w.until; return 0, io.ErrUnexpectedEOF }
