package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// ImportOptions of Import.
type ImportOptions struct {
	// Ref names the image. Required for a directory that is a root file
	// system; elsewhere the archive's own name is used where it is empty.
	Ref      string
	Progress ProgressFunc
}

// Import makes an image of a local file or directory: an archive made by
// "docker save", an OCI archive, an OCI layout directory, or a directory that
// is a root file system. The error wraps ErrArchive where the input is at
// fault, ErrInvalidReference where the name is missing or wrong.
func (s *Store) Import(ctx context.Context, from string, o ImportOptions) (Image, error) {
	ref := ""
	if o.Ref != "" {
		var err error
		if ref, err = Canonical(o.Ref); err != nil {
			return Image{}, err
		}
		if ref == DefaultReference || isDigest(ref) {
			return Image{}, fmt.Errorf("%w: %q cannot be given to an imported image: choose another name", ErrInvalidReference, o.Ref)
		}
	}
	o.Progress = o.Progress.serial()
	img, err := s.single(ctx, "import "+from+" "+ref, func(ctx context.Context) (Image, error) {
		return s.importFrom(ctx, from, ref, o.Progress)
	})
	return img, s.explain("import", from, err)
}

func (s *Store) importFrom(ctx context.Context, from, ref string, progress ProgressFunc) (Image, error) {
	progress.report(Progress{Stage: StageResolve, Detail: from})
	info, err := os.Stat(from)
	if err != nil {
		return Image{}, err
	}
	var files fileSet
	switch {
	case !info.IsDir():
		f, err := s.openTar(ctx, from, progress)
		if err != nil {
			return Image{}, err
		}
		defer f.Close()
		files = f
	case isLayout(from):
		root, err := os.OpenRoot(from)
		if err != nil {
			return Image{}, err
		}
		defer root.Close()
		files = dirFiles{root}
	default:
		return s.importRoot(ctx, from, ref, progress)
	}
	src, name, err := readArchive(files)
	if err != nil {
		return Image{}, err
	}
	if ref == "" {
		if ref, err = Canonical(name); err != nil || name == "" {
			return Image{}, fmt.Errorf("%w: the archive has no usable name: give one with --ref", ErrInvalidReference)
		}
	}
	if _, err := s.Get(src.digest); err == nil {
		return s.tag(src.digest, ref)
	}
	return s.squash(ctx, ref, src, progress)
}

func isLayout(dir string) bool {
	_, err := os.Stat(path.Join(dir, "oci-layout"))
	return err == nil
}

// importRoot takes a directory as it is. It runs as root, with defaults.
func (s *Store) importRoot(ctx context.Context, dir, ref string, progress ProgressFunc) (Image, error) {
	if ref == "" {
		return Image{}, fmt.Errorf("%w: a directory has no name of its own: give one with --ref", ErrInvalidReference)
	}
	t, err := s.newTree()
	if err != nil {
		return Image{}, err
	}
	defer t.Close()
	progress.report(Progress{Stage: StageUnpack, Detail: dir})
	if err := t.ApplyDir(ctx, dir); err != nil {
		return Image{}, err
	}
	c, err := fromOCI(v1.Config{}, t)
	if err != nil {
		return Image{}, err
	}
	return s.finish(ctx, ref, "", t, c, progress)
}

// readArchive finds the image in an archive or layout and the name that it
// has there, "" if none.
func readArchive(files fileSet) (source, string, error) {
	src, name, err := readSaved(files)
	if errors.Is(err, fs.ErrNotExist) {
		src, name, err = readOCI(files)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return source{}, "", fmt.Errorf("%w: it is neither an OCI image nor made by \"docker save\": %w", ErrArchive, err)
	}
	return src, name, err
}

// readSaved reads the index that "docker save" writes.
func readSaved(files fileSet) (source, string, error) {
	var index []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := readJSON(files, "manifest.json", &index); err != nil {
		return source{}, "", err
	}
	if len(index) != 1 {
		return source{}, "", fmt.Errorf("%w: it holds %d images, save one alone", ErrArchive, len(index))
	}
	m := index[0]
	raw, err := readSmall(files, m.Config)
	if err != nil {
		return source{}, "", missing(err)
	}
	c, err := parseConfig(raw)
	if err != nil {
		return source{}, "", err
	}
	if len(c.RootFS.DiffIDs) != len(m.Layers) {
		return source{}, "", fmt.Errorf("%w: its config lists %d layers and its manifest %d", ErrArchive, len(c.RootFS.DiffIDs), len(m.Layers))
	}
	src := source{digest: digestOf(raw), config: c.Config}
	for i, l := range m.Layers {
		size, err := files.size(l)
		if err != nil {
			return source{}, "", missing(err)
		}
		diff, err := sha256Hex(c.RootFS.DiffIDs[i])
		if err != nil {
			return source{}, "", err
		}
		src.layers = append(src.layers, blob{diff: diff, size: size, open: opener(files, l)})
	}
	name := ""
	if len(m.RepoTags) > 0 {
		name = m.RepoTags[0]
	}
	return src, name, nil
}

// nameAnnotations tell an image's name in an OCI index, the fullest first.
var nameAnnotations = []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"}

// readOCI reads an OCI layout and picks the image for this machine.
func readOCI(files fileSet) (source, string, error) {
	var index v1.IndexManifest
	if err := readJSON(files, "index.json", &index); err != nil {
		return source{}, "", err
	}
	desc, err := pick(index.Manifests)
	if err != nil {
		return source{}, "", err
	}
	name := ""
	for _, key := range nameAnnotations {
		if n := desc.Annotations[key]; name == "" && strings.ContainsAny(n, "/:") {
			name = n // a bare tag is no name
		}
	}
	for range 3 { // indexes may lead to indexes
		if !desc.MediaType.IsIndex() {
			break
		}
		var nested v1.IndexManifest
		if err := readBlobJSON(files, desc, &nested); err != nil {
			return source{}, "", err
		}
		if desc, err = pick(nested.Manifests); err != nil {
			return source{}, "", err
		}
	}
	src, err := readManifest(files, desc)
	return src, name, err
}

func readManifest(files fileSet, desc v1.Descriptor) (source, error) {
	var m v1.Manifest
	if err := readBlobJSON(files, desc, &m); err != nil {
		return source{}, err
	}
	if !m.Config.MediaType.IsConfig() {
		return source{}, fmt.Errorf("%w: it is not a container image: its config has the type %q", ErrArchive, m.Config.MediaType)
	}
	raw, err := readBlob(files, m.Config)
	if err != nil {
		return source{}, err
	}
	c, err := parseConfig(raw)
	if err != nil {
		return source{}, err
	}
	src := source{digest: desc.Digest.String(), config: c.Config}
	for _, l := range m.Layers {
		hex, err := sha256Hex(l.Digest)
		if err != nil {
			return source{}, err
		}
		size, err := files.size(blobPath(hex))
		if err != nil {
			return source{}, missing(err)
		}
		src.layers = append(src.layers, blob{raw: hex, size: size, open: opener(files, blobPath(hex))})
	}
	return src, nil
}

// pick chooses the manifest for this machine; one that names no platform
// counts if it is the only one.
func pick(all []v1.Descriptor) (v1.Descriptor, error) {
	for _, d := range all {
		if p := d.Platform; p != nil && p.OS == "linux" && p.Architecture == runtime.GOARCH {
			return d, nil
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return v1.Descriptor{}, fmt.Errorf("%w: of its %d images none is for linux/%s", ErrArchive, len(all), runtime.GOARCH)
}

func parseConfig(raw []byte) (*v1.ConfigFile, error) {
	var c v1.ConfigFile
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("%w: config: %w", ErrArchive, err)
	}
	return &c, checkPlatform(&c)
}

func opener(files fileSet, name string) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return files.open(name) }
}
