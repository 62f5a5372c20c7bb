package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
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
	url := a.url
	if url == "" {
		url = "http://" + a.env(envListen, defaultListen)
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
	vars := exports(url, token, project, script, a.getenv("NODE_OPTIONS"))
	if a.json {
		return a.printJSON(vars)
	}
	for _, v := range vars {
		fmt.Fprintf(a.out, "export %s=%s\n", v.Name, shellQuote(v.Value))
	}
	return nil
}

func exports(url, token, project, script, nodeOptions string) []envVar {
	load := "--import=" + nodeQuote(fileURL(script))
	if !strings.Contains(nodeOptions, load) {
		nodeOptions = strings.TrimSpace(nodeOptions + " " + load)
	}
	return []envVar{
		{envURL, url},
		{envToken, token},
		{"VERCEL_TOKEN", token},
		{"VERCEL_TEAM_ID", "team_glovebox"},
		{"VERCEL_PROJECT_ID", project},
		{"NODE_OPTIONS", nodeOptions},
	}
}

// writeRegister puts the hook for Node.js where Node.js can load it, so that
// the binary is all that has to be installed.
func (a *app) writeRegister() (string, error) {
	dir, err := filepath.Abs(filepath.Join(a.dataDir, "vercel"))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make %s: %w", dir, err)
	}
	for name, content := range registerFiles() {
		if err := writeFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, registerName), nil
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

// nodeQuote makes one word of s in NODE_OPTIONS.
func nodeQuote(s string) string {
	if !strings.ContainsAny(s, ` "\`) {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
