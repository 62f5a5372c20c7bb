package umounter

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// run starts the program on dir in a mount namespace of its own, and gives it
// the bytes of input.
func run(t *testing.T, input, dir string) error {
	t.Helper()
	f, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command(Path(f), "umount", "--sync-fd=3", dir)
	cmd.ExtraFiles = []*os.File{r}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString(input); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return cmd.Wait()
}

func TestUmount(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount")
	}
	dir := t.TempDir()
	if err := unix.Mount("glovebox-test", dir, "tmpfs", 0, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	mounted := func() bool {
		var st, parent syscall.Stat_t
		if err := syscall.Stat(dir, &st); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Stat(dir+"/..", &parent); err != nil {
			t.Fatal(err)
		}
		return st.Dev != parent.Dev
	}
	if !mounted() {
		t.Fatal("nothing mounted")
	}
	if err := run(t, "", dir); err == nil {
		t.Error("without a byte it succeeded")
	}
	if !mounted() {
		t.Fatal("unmounted without a byte")
	}
	if err := run(t, "x", dir); err != nil {
		t.Error(err)
		unix.Unmount(dir, unix.MNT_DETACH)
	}
	if mounted() {
		t.Error("still mounted")
	}
	if err := run(t, "x", dir); err == nil {
		t.Error("unmounting what is not mounted succeeded")
	}
}
