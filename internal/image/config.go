package image

import (
	"fmt"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/glovebox-dev/glovebox/internal/layer"
)

// fromOCI takes over what commands inherit from an OCI config; t is the
// image's file system, where its user is looked up.
func fromOCI(c v1.Config, t *layer.Tree) (Config, error) {
	user, err := resolveUser(t, c.User)
	if err != nil {
		return Config{}, err
	}
	out := Config{WorkingDir: defaultWorkDir, User: user}
	hasPath := false
	for _, kv := range c.Env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || strings.ContainsRune(kv, 0) {
			return Config{}, fmt.Errorf("%w: its config has the environment entry %q, which is not NAME=VALUE", ErrArchive, kv)
		}
		hasPath = hasPath || name == "PATH"
		out.Env = append(out.Env, kv)
	}
	if !hasPath {
		out.Env = append([]string{"PATH=" + defaultPath}, out.Env...)
	}
	if strings.ContainsRune(c.WorkingDir, 0) {
		return Config{}, fmt.Errorf("%w: its config has a working directory with NUL", ErrArchive)
	}
	if dir := path.Join("/", c.WorkingDir); dir != "/" {
		out.WorkingDir = dir
	}
	return out, nil
}
