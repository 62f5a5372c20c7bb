package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/image"
)

// checkImage: the default image is there, or can be made.
func (a *app) checkImage(context.Context) []finding {
	const name = "image"
	if _, err := os.Stat(a.dataDir); errors.Is(err, os.ErrNotExist) {
		return imageMissing(name)
	}
	store, err := a.openImages(a.dataDir)
	if err != nil {
		return warning(name, err.Error(), "run it as root: sudo glovebox doctor")
	}
	defer store.Close()
	img, err := store.Get(image.DefaultReference)
	if errors.Is(err, image.ErrNotFound) {
		return imageMissing(name)
	}
	if err != nil {
		return warning(name, err.Error(), "make it anew: glovebox image build --force")
	}
	return ok(name, img.Reference+" "+short(img.Digest)+", "+size(sizeOf(img)))
}

func imageMissing(name string) []finding {
	var tools []string
	for _, t := range []string{"mmdebstrap", "npm"} {
		if _, err := exec.LookPath(t); err != nil {
			tools = append(tools, t)
		}
	}
	if len(tools) > 0 {
		return warning(name, image.DefaultReference+" is not made yet, and its tools are missing",
			"apt-get install "+strings.Join(tools, " ")+" debian-archive-keyring && glovebox image build")
	}
	return warning(name, image.DefaultReference+" is not made yet", "glovebox image build; the first run or serve does it, too")
}

// checkDriver asks the driver what keeps it from starting machines.
func (a *app) checkDriver(ctx context.Context) []finding {
	const name = "driver"
	// A directory of its own: looking at a machine must not change its data.
	dir, err := os.MkdirTemp("", "glovebox-doctor-")
	if err != nil {
		return fatal(name, err.Error(), "make the directory for temporary files writable")
	}
	defer os.RemoveAll(dir)
	d, err := gvisor.New(gvisor.Options{DataDir: dir})
	if err != nil {
		return fatal(name, err.Error(), "follow the remedies above, or use a binary made by make build")
	}
	defer d.Close()
	var found []finding
	for _, p := range d.Check(ctx) {
		f := finding{Check: name, Level: levelWarning, Detail: p.Title, Remedy: p.Remedy}
		if p.Fatal {
			f.Level = levelFatal
		}
		found = append(found, f)
	}
	if len(found) == 0 {
		return ok(name, "gVisor can start machines")
	}
	return found
}
