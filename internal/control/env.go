package control

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/image"
)

// defaultPath is the PATH of an image that sets none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is what a command gets, later ones over earlier ones: a PATH,
// the image's, the default user's names, the machine's, the create call's,
// root's names with sudo, the command's own.
func environment(img image.Config, machine, create, command map[string]string, sudo bool) []string {
	env := map[string]string{"PATH": defaultPath}
	for _, kv := range img.Env {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" {
			env[k] = v
		}
	}
	maps.Copy(env, names(img.User))
	maps.Copy(env, machine)
	maps.Copy(env, create)
	if sudo {
		maps.Copy(env, names(image.User{Name: "root", Home: "/root"}))
	}
	maps.Copy(env, command)
	out := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

func names(u image.User) map[string]string {
	out := map[string]string{}
	if u.Home != "" {
		out["HOME"] = u.Home
	}
	if u.Name != "" {
		out["USER"], out["LOGNAME"] = u.Name, u.Name
	}
	return out
}

// runAs is who runs a command, or owns a file that the API makes.
func runAs(img image.Config, sudo bool) guest.User {
	if sudo {
		return guest.User{Groups: []uint32{0}}
	}
	return guest.User{UID: img.User.UID, GID: img.User.GID, Groups: img.User.Groups}
}

// resolvePath makes p absolute: relative to base, which is relative to the
// working directory root. What ".." means is left to the guest, where the
// name before it may be a symbolic link.
func resolvePath(root, base, p string) string {
	if path.IsAbs(p) {
		return p
	}
	if !path.IsAbs(base) {
		base = join(root, base)
	}
	return join(base, p)
}

func join(dir, p string) string {
	for strings.HasPrefix(p, "./") {
		p = strings.TrimLeft(p[2:], "/")
	}
	if p == "" || p == "." {
		return dir
	}
	return strings.TrimRight(dir, "/") + "/" + p
}
