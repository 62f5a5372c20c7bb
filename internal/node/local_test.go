package node_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/egress"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/guest/wire"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/node"
	"github.com/glovebox-dev/glovebox/internal/snapshot"
)

// The test binary is the sandbox kernel of its own machines.
func TestMain(m *testing.M) {
	if gvisor.Main() {
		return
	}
	os.Exit(m.Run())
}

const (
	testMemory = 512 << 20
	testDisk   = 4 << 30
)

// testImage is the default image, made by `make image`.
func testImage(t testing.TB, dir string) image.Image {
	t.Helper()
	data := os.Getenv("GLOVEBOX_TEST_DATA")
	if data == "" {
		data = "../../.glovebox"
	}
	shared, err := image.Open(data, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	from, err := shared.Get(image.DefaultReference)
	if err != nil {
		t.Fatalf("%v; run make image", err)
	}
	own, err := image.Open(dir, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close() })
	if err := own.Link(data); err != nil {
		t.Fatal(err)
	}
	img, err := own.Get(from.Digest)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func newNode(t testing.TB, warm int) (node.Node, image.Image) {
	t.Helper()
	dir := t.TempDir()
	return newNodeAt(t, warm, dir, dir)
}

// newNodeAt makes a node that keeps snapshots in a data directory of their own.
func newNodeAt(t testing.TB, warm int, dir, snapDir string) (node.Node, image.Image) {
	t.Helper()
	img := testImage(t, dir)
	d, err := gvisor.New(gvisor.Options{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	snaps, err := snapshot.Open(snapDir, snapshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	n, err := node.New(node.Config{Driver: d, Snapshots: snaps, Logger: log, Warm: warm})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := errors.Join(d.Close(), snaps.Close()); err != nil {
			t.Error(err)
		}
	})
	return n, img
}

func spec(img image.Image) node.Spec {
	return node.Spec{ID: "se_test", Image: img, VCPUs: 1, MemoryBytes: testMemory, DiskBytes: testDisk, Policy: egress.AllowAll()}
}

// run runs a command to its end and returns what it wrote.
func run(t testing.TB, m node.Machine, img image.Image, id string, argv ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	u := img.Config.User
	c := guest.Command{ID: id, Argv: argv, Env: img.Config.Env, Dir: img.Config.WorkingDir, User: guest.User{UID: u.UID, GID: u.GID, Groups: u.Groups}}
	if err := m.StartCommand(ctx, c); err != nil {
		t.Fatalf("start %q: %v", argv, err)
	}
	var log bytes.Buffer
	if err := m.Attach(ctx, id, 0, func(_ int64, b []byte) error { log.Write(b); return nil }); err != nil {
		t.Fatalf("attach to %q: %v", argv, err)
	}
	var out, errs bytes.Buffer
	for rest := log.Bytes(); len(rest) > 0; {
		r, n, err := wire.ParseRecord(rest)
		if err != nil || n == 0 {
			t.Fatalf("log of %q ends with %d bytes that are no record: %v", argv, len(rest), err)
		}
		switch rest = rest[n:]; r.Kind {
		case wire.RecordStdout:
			out.Write(r.Data)
		case wire.RecordStderr:
			errs.Write(r.Data)
		case wire.RecordExit:
			return out.String(), errs.String(), int(r.Code)
		}
	}
	t.Fatalf("log of %q has no exit", argv)
	return "", "", 0
}

func TestStartRunStop(t *testing.T) {
	n, img := newNode(t, 0)
	start := time.Now()
	m, err := n.Start(t.Context(), spec(img))
	if err != nil {
		t.Fatal(err)
	}
	t.Log("started in", time.Since(start))
	start = time.Now()
	out, errs, code := run(t, m, img, "c1", "python3", "-c", "import os; print(6*7, os.getuid(), os.getcwd())")
	t.Log("python in", time.Since(start))
	if out != "42 1000 /vercel/sandbox\n" || errs != "" || code != 0 {
		t.Errorf("got %q, %q, %d", out, errs, code)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}
