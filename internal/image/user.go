package image

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/layer"
)

// maxDatabase bounds what is read of an image's passwd and group files.
const maxDatabase = 4 << 20

// resolveUser looks up what an image's config says of its user, "NAME",
// "UID", "NAME:GROUP" and so on, in the image's own passwd and group files.
// Nobody in particular is root; a number needs no entry.
func resolveUser(t *layer.Tree, spec string) (User, error) {
	passwd, err := readDatabase(t, "/etc/passwd")
	if err != nil {
		return User{}, err
	}
	groups, err := readDatabase(t, "/etc/group")
	if err != nil {
		return User{}, err
	}
	who, group, hasGroup := strings.Cut(spec, ":")
	if who == "" {
		who = "0"
	}
	u, err := findUser(passwd, who)
	if err != nil {
		return User{}, err
	}
	if hasGroup && group != "" {
		// As docker has it, a group in the config replaces all others.
		if u.GID, err = findGroup(groups, group); err != nil {
			return User{}, err
		}
		return u, nil
	}
	for _, g := range groups {
		if len(g) < 4 || !slices.Contains(strings.Split(g[3], ","), u.Name) {
			continue
		}
		gid, err := parseID(g[2])
		if err == nil && gid != u.GID && !slices.Contains(u.Groups, gid) {
			u.Groups = append(u.Groups, gid)
		}
	}
	return u, nil
}

func findUser(passwd [][]string, who string) (User, error) {
	id, idErr := parseID(who)
	for _, p := range passwd {
		if len(p) < 6 {
			continue
		}
		uid, err := parseID(p[2])
		if err != nil || p[0] != who && (idErr != nil || uid != id) {
			continue
		}
		gid, err := parseID(p[3])
		if err != nil {
			continue
		}
		u := User{Name: p[0], UID: uid, GID: gid, Home: p[5]}
		if !strings.HasPrefix(u.Home, "/") {
			u.Home = "/"
		}
		return u, nil
	}
	if idErr != nil {
		return User{}, fmt.Errorf("%w: its config names the user %q, which its /etc/passwd does not have", ErrArchive, who)
	}
	u := User{Name: who, UID: id, Home: "/"}
	if id == 0 {
		u.Name, u.Home = "root", "/root"
	}
	return u, nil
}

func findGroup(groups [][]string, group string) (uint32, error) {
	id, idErr := parseID(group)
	for _, g := range groups {
		if len(g) >= 3 && g[0] == group {
			if gid, err := parseID(g[2]); err == nil {
				return gid, nil
			}
		}
	}
	if idErr != nil {
		return 0, fmt.Errorf("%w: its config names the group %q, which its /etc/group does not have", ErrArchive, group)
	}
	return id, nil
}

func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

// readDatabase splits a file of lines with colons; a missing one is empty.
func readDatabase(t *layer.Tree, path string) ([][]string, error) {
	b, err := t.ReadFile(path, maxDatabase)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArchive, err)
	}
	var out [][]string
	for line := range strings.Lines(string(b)) {
		out = append(out, strings.Split(strings.TrimRight(line, "\r\n"), ":"))
	}
	return out, nil
}

// defaultPath is the PATH of images that set none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
