package image

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/layer"
)

// The Node.js binary and npm go below /usr/local, where images that are made
// from the official archives have them.
const (
	nodeModules = "/usr/local/lib/node_modules/"
	npmDir      = nodeModules + "npm/"
)

// addNode unpacks the packages of Node.js and of npm, two local files.
func addNode(ctx context.Context, t *layer.Tree, node, npm string) error {
	err := unpackPackage(ctx, t, node, func(name string) string {
		switch name {
		case "bin/node":
			return "/usr/local/bin/node"
		case "LICENSE":
			return "/usr/local/share/doc/node/LICENSE"
		}
		return ""
	})
	if err != nil {
		return err
	}
	err = unpackPackage(ctx, t, npm, func(name string) string {
		if strings.HasPrefix(name, "docs/") || strings.HasPrefix(name, "man/") {
			return ""
		}
		return npmDir + name
	})
	if err != nil {
		return err
	}
	for _, tool := range []string{"npm", "npx"} {
		script := "bin/" + tool + "-cli.js"
		if _, err := t.ReadFile(npmDir+script, 1<<20); err != nil {
			return fmt.Errorf("package %s: %w", npmPackage, err)
		}
		link := layer.Entry{Path: "/usr/local/bin/" + tool, Mode: unix.S_IFLNK | 0o777, Target: "../lib/node_modules/npm/" + script, MTime: builtin}
		if err := t.Add(link); err != nil {
			return err
		}
	}
	return nil
}

// fetchPackage has the host's npm download a package into dir and verify it,
// and returns the file's path.
func fetchPackage(ctx context.Context, dir, pkg string, progress ProgressFunc) (string, error) {
	progress.report(Progress{Stage: StagePackages, Detail: "fetching " + pkg})
	cmd := command(ctx, "npm", "pack", pkg, "--json", "--pack-destination", dir)
	cmd.Dir = dir
	var packed []struct {
		Filename string `json:"filename"`
	}
	err := run(cmd, nil, func(r io.Reader) error { return json.NewDecoder(r).Decode(&packed) })
	if err != nil {
		return "", fmt.Errorf("fetch package %s: %w", pkg, err)
	}
	if len(packed) != 1 || packed[0].Filename == "" || packed[0].Filename != filepath.Base(packed[0].Filename) {
		return "", fmt.Errorf("fetch package %s: npm named no file", pkg)
	}
	return filepath.Join(dir, packed[0].Filename), nil
}

// unpackPackage adds the files of an npm package, owned by root, where place
// says; "" leaves one out.
func unpackPackage(ctx context.Context, t *layer.Tree, file string, place func(string) string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := decompress(f)
	if err != nil {
		return err
	}
	defer plain.Close()
	tr := tar.NewReader(plain)
	for ctx.Err() == nil {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(file), err)
		}
		_, name, _ := strings.Cut(h.Name, "/") // below "package"
		if h.Typeflag != tar.TypeReg || name == "" || place(name) == "" {
			continue
		}
		mode := uint32(unix.S_IFREG | 0o644)
		if h.Mode&0o111 != 0 {
			mode |= 0o111
		}
		err = t.Add(layer.Entry{Path: place(name), Mode: mode, MTime: h.ModTime, Size: h.Size, Content: tr})
		if err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(file), err)
		}
	}
	return ctx.Err()
}
