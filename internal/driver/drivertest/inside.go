package drivertest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/layer"
)

func execs(t *testing.T, b *bench) {
	m := b.start(t, small("exec"))
	for _, c := range []struct {
		argv []string
		out  string
		code int
	}{
		{[]string{"/agent", "echo", "a b"}, "a b", 0},
		{[]string{"/agent", "stderr", "e"}, "e", 0},
		{[]string{"/agent", "exit", "7"}, "", 7},
		{[]string{"/agent", "uid"}, "0 0", 0},
	} {
		out, code, err := m.Exec(b.ctx, c.argv)
		if err != nil || code != c.code || strings.TrimSpace(string(out)) != c.out {
			t.Errorf("%q: %q, code %d, %v", c.argv, out, code, err)
		}
	}
	if _, _, err := m.Exec(b.ctx, []string{"/missing"}); err == nil {
		t.Error("what does not exist is executed")
	}
	if _, _, err := m.Exec(b.ctx, nil); err == nil {
		t.Error("nothing is executed")
	}
	ctx, cancel := context.WithTimeout(b.ctx, 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, _, err := m.Exec(ctx, []string{"/agent", "sleep", "1h"}); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 10*time.Second {
		t.Errorf("a command beyond its time: %v after %v", err, time.Since(begin))
	}
}

// image writes a layer that holds one file.
func image(t *testing.T, name, path, content string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	entries := []layer.Entry{{
		Path: path, Mode: unix.S_IFREG | 0o644, MTime: time.Unix(0, 0),
		Size: int64(len(content)), Content: strings.NewReader(content),
	}}
	for _, d := range []string{"/proc", "/base-dir"} {
		entries = append(entries, layer.Entry{Path: d, Mode: unix.S_IFDIR | 0o755, MTime: time.Unix(0, 0)})
	}
	if _, err := layer.FromFiles(context.Background(), f, entries...); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

func layers(t *testing.T, b *bench) {
	m := b.start(t, small("layers"))
	base, top := image(t, "base", "/f", "from the base"), image(t, "top", "/g", "from the top")
	if err := m.MountLayers(b.ctx, nil); err == nil {
		t.Error("no layers are mounted")
	}
	// Right after the start, whether PID 1 runs already or not.
	if err := m.MountLayers(b.ctx, []string{base, top}); err != nil {
		t.Fatal(err)
	}
	if got := b.sh(t, m, "cat", driver.LayerDir(0)+"/f"); got != "from the base" {
		t.Errorf("layer 0: %q", got)
	}
	if err := m.MountLayers(b.ctx, []string{base}); err == nil {
		t.Error("layers are mounted twice")
	}
	if out, code, _ := m.Exec(b.ctx, []string{"/agent", "write", driver.LayerDir(0) + "/x", "x"}); code == 0 {
		t.Errorf("a layer can be written: %s", out)
	}
	c := newGateway(t, m).dial(b.ctx, t, driver.AgentPort)
	if got := ask(t, c, "assemble "+driver.LayerDir(1)+":"+driver.LayerDir(0)); got != "ok" {
		t.Fatalf("assemble: %s", got)
	}
	if got := ask(t, c, "read /f"); got != "from the base" {
		t.Errorf("in the assembled root: %q", got)
	}
	if got := ask(t, c, "read /g"); got != "from the top" {
		t.Errorf("in the assembled root: %q", got)
	}
	if got := ask(t, c, "read /agent"); !strings.Contains(got, "no such file") {
		t.Errorf("the old root is still there: %q", got)
	}
}

// hostInvisible: a bare machine shows its own small world and nothing else.
func hostInvisible(t *testing.T, b *bench) {
	t.Setenv("GLOVEBOX_SECRET", "of the server")
	m := b.start(t, small("bare"))
	root := strings.Fields(b.sh(t, m, "ls", "/"))
	for _, name := range root {
		switch name {
		case "agent", "proc", "sys", "dev", "tmp", "run", "up", "newroot", "empty":
		default:
			if name[0] != 'l' && name[0] != 'd' || len(name) > 4 {
				t.Errorf("in the root: %s", name)
			}
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/proc/1/environ", "/proc/self/environ", "/proc/1/cmdline", "/proc/mounts", "/proc/self/mountinfo", "/proc/sys/kernel/hostname", "/proc/version"} {
		got := b.sh(t, m, "cat", file)
		for _, secret := range []string{"GLOVEBOX", b.dir, os.TempDir() + "/", "/home/", "/root/", host} {
			if strings.Contains(got, secret) && secret != "" && secret != "box" {
				t.Errorf("%s shows %q: %s", file, secret, got)
			}
		}
	}
	for _, p := range strings.Fields(b.sh(t, m, "ls", "/proc")) {
		if strings.Trim(p, "0123456789") == "" {
			cmd, code, err := m.Exec(b.ctx, []string{"/agent", "cat", "/proc/" + p + "/cmdline"})
			// The one that listed has ended.
			if err != nil || (code == 0 && !strings.HasPrefix(string(cmd), "/agent")) {
				t.Errorf("process %s: %q, %v", p, cmd, err)
			}
		}
	}
	if env := b.sh(t, m, "env"); strings.Contains(env, "GLOVEBOX") {
		t.Errorf("environment: %s", env)
	}
	for _, dev := range []string{"/dev/kmsg", "/dev/mem", "/dev/sda", "/dev/vda", "/dev/kvm"} {
		if out, code, _ := m.Exec(b.ctx, []string{"/agent", "cat", dev}); code == 0 {
			t.Errorf("%s can be read: %.100s", dev, out)
		}
	}
}
