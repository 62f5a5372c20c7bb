package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/daemon"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/store"
)

func (a *app) imageCommand() *cobra.Command {
	return group("image", "Images that sandboxes start from",
		a.imageLsCommand(), a.imagePullCommand(), a.imageImportCommand(),
		a.imageBuildCommand(), a.imageRmCommand(), a.imageInspectCommand())
}

// openImages opens the images of a data directory; beside a running server,
// too.
func (a *app) openImages(dir string) (*image.Store, error) {
	return image.Open(dir, image.Options{
		InUse:  func(digest string) bool { return imageInUse(dir, digest) },
		Logger: slog.New(slog.NewTextHandler(a.errOut, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
}

// imageInUse asks the state in a data directory, beside a running server too,
// whether something was made from an image. Where it cannot be asked the image
// counts as used.
func imageInUse(dir, digest string) bool {
	path := filepath.Join(dir, daemon.StateFile)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return false
	}
	ctx := context.Background()
	state, err := store.Open(ctx, path)
	if err != nil {
		return true
	}
	used, err := state.ImageInUse(ctx, digest)
	return errors.Join(err, state.Close()) != nil || used
}

// withImages opens the images for one verb.
func (a *app) withImages(do func(*image.Store) error) error {
	store, err := a.openImages(a.dataDir)
	if err != nil {
		return err
	}
	return errors.Join(do(store), store.Close())
}

// ensureImage returns an image that is there, or makes or fetches it.
func (a *app) ensureImage(ctx context.Context, store *image.Store, ref string) (image.Image, error) {
	img, err := store.Get(ref)
	if !errors.Is(err, image.ErrNotFound) {
		return img, err
	}
	name, err := image.Canonical(ref)
	if err != nil {
		return image.Image{}, err
	}
	return a.withProgress(name, func(report image.ProgressFunc) (image.Image, error) {
		if name == image.DefaultReference {
			return store.Build(ctx, image.BuildOptions{Progress: report})
		}
		return store.Pull(ctx, name, image.PullOptions{Progress: report})
	})
}

// withProgress shows how the making of an image goes on.
func (a *app) withProgress(name string, do func(image.ProgressFunc) (image.Image, error)) (image.Image, error) {
	p := a.newProgress()
	start := time.Now()
	img, err := do(func(r image.Progress) {
		step := name + ": " + r.Stage
		if r.Total > 0 || r.Stage == image.StagePackages {
			p.update(step, r.Done, r.Total)
			return
		}
		if r.Detail != "" {
			step += " " + printable(r.Detail)
		}
		p.update(step, r.Done, r.Total)
	})
	p.done()
	if err == nil {
		a.note("%s is ready (%s, %s)", name, size(sizeOf(img)), time.Since(start).Round(100*time.Millisecond))
	}
	return img, err
}

func sizeOf(img image.Image) int64 {
	var n int64
	for _, l := range img.Layers {
		n += l.Size
	}
	return n
}

func (a *app) imageLsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the images on this machine",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.withImages(func(store *image.Store) error {
				images, err := store.List()
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(images)
				}
				now := time.Now()
				var rows [][]string
				for _, img := range images {
					rows = append(rows, []string{img.Reference, short(img.Digest), size(sizeOf(img)), ago(img.Created, now)})
				}
				a.table([]string{"IMAGE", "DIGEST", "SIZE", "CREATED"}, rows)
				return nil
			})
		},
	}
}

// short is enough of a digest to tell images apart.
func short(digest string) string {
	hex := strings.TrimPrefix(digest, "sha256:")
	return hex[:min(12, len(hex))]
}

func (a *app) imagePullCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pull REFERENCE",
		Short: "Fetch an image from a registry",
		Long:  "Fetches an image from a registry, with Docker's credentials where there are any.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := image.Canonical(args[0])
			if err != nil {
				return err
			}
			return a.make(name, func(store *image.Store, report image.ProgressFunc) (image.Image, error) {
				return store.Pull(cmd.Context(), args[0], image.PullOptions{Progress: report})
			})
		},
	}
}

// make makes an image and prints its digest.
func (a *app) make(name string, do func(*image.Store, image.ProgressFunc) (image.Image, error)) error {
	return a.withImages(func(store *image.Store) error {
		img, err := a.withProgress(name, func(report image.ProgressFunc) (image.Image, error) { return do(store, report) })
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(img)
		}
		_, err = fmt.Fprintln(a.out, img.Digest)
		return err
	})
}

func (a *app) imageImportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "import PATH [REFERENCE]",
		Short: "Make an image from an archive or a directory",
		Long: `Makes an image from an archive that docker save or an OCI tool wrote, from an
OCI layout, or from a directory that holds a root file system. Without REFERENCE
it gets the name that the archive has for it.`,
		Example: `docker save app:1 -o app.tar && glovebox image import app.tar`,
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := os.Stat(args[0]); err != nil {
				return fail(causeOf("read", args[0], err), "check the path")
			}
			ref := ""
			if len(args) == 2 {
				ref = args[1]
			}
			return a.make(cmp.Or(ref, args[0]), func(store *image.Store, report image.ProgressFunc) (image.Image, error) {
				return store.Import(cmd.Context(), args[0], image.ImportOptions{Ref: ref, Progress: report})
			})
		},
	}
}

func (a *app) imageBuildCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Make the default image, glovebox/universal",
		Long: `Makes the default image: Debian with Python, Node.js, git and curl. It needs
root, mmdebstrap and npm. Does nothing if the image is there, unless --force.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !force {
				there := false
				err := a.withImages(func(store *image.Store) error {
					img, err := store.Get(image.DefaultReference)
					if errors.Is(err, image.ErrNotFound) {
						return nil
					}
					if err == nil {
						there = true
						_, err = fmt.Fprintln(a.out, img.Digest)
					}
					return err
				})
				if there || err != nil {
					return err
				}
			}
			return a.make(image.DefaultReference, func(store *image.Store, report image.ProgressFunc) (image.Image, error) {
				return store.Build(cmd.Context(), image.BuildOptions{Force: force, Progress: report})
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "make it anew although it is there")
	return cmd
}

func (a *app) imageRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm REFERENCE…",
		Short: "Remove images",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, refs []string) error {
			return a.withImages(func(store *image.Store) error {
				for _, ref := range refs {
					if err := store.Remove(ref); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func (a *app) imageInspectCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect REFERENCE",
		Short: "Print an image's digest, layers and configuration as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withImages(func(store *image.Store) error {
				img, err := store.Get(args[0])
				if err != nil {
					return err
				}
				return a.printJSON(img)
			})
		},
	}
}
