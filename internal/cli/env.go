package cli

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/compat/vercel"
)

// envVar is one export.
type envVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (a *app) envCommand() *cobra.Command {
	var token string
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Print the exports that point the published client here",
		Long: `Prints shell exports with which programs that use the npm package
@vercel/sandbox, and the command sandbox, run against this server unmodified.

The token is --token or $GLOVEBOX_TOKEN; without one, a new token of --project
is made in the data directory.`,
		Example: `eval "$(glovebox env)"
node my-program.mjs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if token == "" {
				token = a.token
			}
			return a.printEnv(cmd, token)
		},
	}
	cmd.Flags().StringVar(&token, "token", "", "token to use (default $"+envToken+")")
	return cmd
}

func (a *app) printEnv(cmd *cobra.Command, token string) error {
	server := a.url
	if server == "" {
		server = "http://" + a.env(envListen, defaultListen)
	}
	project := a.project
	if project == "" {
		project = "default"
	}
	if token == "" {
		made, err := a.makeToken(cmd.Context(), project)
		if err != nil {
			return err
		}
		token = made
	}
	script, err := a.writeRegister()
	if err != nil {
		return err
	}
	vars := exports(server, token, project, script, a.getenv("NODE_OPTIONS"))
	if a.json {
		return a.printJSON(vars)
	}
	for _, v := range vars {
		fmt.Fprintf(a.out, "export %s=%s\n", v.Name, shellQuote(v.Value))
	}
	return nil
}

func exports(server, token, project, script, nodeOptions string) []envVar {
	// Node.js takes a file URL where a path with spaces would be two words.
	load := "--import=" + (&url.URL{Scheme: "file", Path: filepath.ToSlash(script)}).String()
	if !strings.Contains(nodeOptions, load) {
		nodeOptions = strings.TrimSpace(nodeOptions + " " + load)
	}
	return []envVar{
		{envURL, server},
		{envToken, token},
		{envProject, project},
		{"NODE_OPTIONS", nodeOptions},
	}
}

// writeRegister puts the hook for Node.js where Node.js can load it, so that
// the binary is all that has to be installed: in the data directory or, for a
// user who may not write there, in the user's cache.
func (a *app) writeRegister() (string, error) {
	dir := filepath.Join(a.dataDir, "vercel")
	if os.Geteuid() != 0 {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(cache, "glovebox", "vercel")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	err = fs.WalkDir(vercel.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(name))
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		content, err := vercel.Files.ReadFile(name)
		if err != nil {
			return err
		}
		return writeFile(to, content, 0o644)
	})
	if err != nil {
		return "", fmt.Errorf("write the client's hook: %w", err)
	}
	return filepath.Join(dir, vercel.Register), nil
}

// writeFile replaces path in one step, since a program may be loading it.
func writeFile(path string, content []byte, mode os.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(content) {
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	if err == nil {
		err = tmp.Chmod(mode)
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// shellQuote makes one word of s for a POSIX shell.
func shellQuote(s string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:=@,+", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
