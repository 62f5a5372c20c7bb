package control

import (
	"context"
	_ "embed"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/guest/wire"
	"github.com/glovebox-dev/glovebox/internal/node"
)

// The scripts run in the sandbox, as its default user and under its network
// policy. Secrets reach them on stdin alone.
var (
	//go:embed source_git.sh
	gitScript string
	//go:embed source_tarball.sh
	tarballScript string
)

// maxSourceOutput is how much of the end of a script's stderr an error tells.
const maxSourceOutput = 2000

// fetch brings a source into a machine before its session runs. What fails is
// a bad request with the tool's own words.
func (s *session) fetch(ctx context.Context, m node.Machine, src *api.Source) error {
	ctx, cancel := context.WithTimeout(ctx, api.Milliseconds(s.record().Timeout))
	defer cancel()
	argv, input, secrets := gitSource(src)
	if src.Type == api.SourceTarball {
		argv, input, secrets = tarballSource(src)
	}
	code, output, err := s.runHidden(ctx, m, argv, input)
	if err != nil {
		if ctx.Err() != nil && s.ctx.Err() == nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return api.BadRequest("field source: could not be fetched within the sandbox's timeout of %d ms; set a longer timeout", s.record().Timeout)
		}
		return s.fetchError(ctx, m, err)
	}
	if code != 0 {
		return api.BadRequest("field source: %s failed with exit code %d: %s", src.Type, code, redact(output, secrets))
	}
	return nil
}

// fetchError of a machine whose session does not run yet.
func (s *session) fetchError(ctx context.Context, m node.Machine, err error) error {
	select {
	case <-m.Done():
		return api.BadRequest("field source: the sandbox ended while it was fetched: %s", reasonOf(m.Err(), s.memoryMB()))
	default:
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return internal("fetch source", err)
}

// gitSource returns the command, its input, and what must not be told.
func gitSource(src *api.Source) (argv []string, input string, secrets []string) {
	u, _ := url.Parse(src.URL) // was validated
	user, password := src.Username, src.Password
	if u.User != nil { // out of the command line and the clone's configuration
		if user == "" && password == "" {
			user = u.User.Username()
			password, _ = u.User.Password()
		}
		u.User = nil
	}
	depth := ""
	if d, set := src.Depth.Get(); set {
		depth = strconv.FormatInt(d, 10)
	}
	argv = []string{"sh", "-c", gitScript, "git-source", u.String(), src.Repository(), depth, src.Revision, u.Scheme + "://" + u.Host}
	if user != "" || password != "" {
		argv = append(argv, "credentials")
		input = user + "\n" + password + "\n"
	}
	return argv, input, []string{password, url.QueryEscape(password), url.PathEscape(password)}
}

func tarballSource(src *api.Source) (argv []string, input string, secrets []string) {
	u, _ := url.Parse(src.URL) // was validated
	secrets = []string{u.RawQuery}
	if u.User != nil {
		secrets = append(secrets, u.User.String())
	}
	// The query and user of a URL are often what opens it.
	text := strings.NewReplacer(`"`, "%22", `\`, "%5C").Replace(u.String()) // as curl's configuration quotes
	return []string{"sh", "-c", tarballScript, "tarball-source"}, text + "\n", secrets
}

// redact removes secrets from a text and shortens it to its end.
func redact(text string, secrets []string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "***")
		}
	}
	text = strings.ToValidUTF8(strings.TrimSpace(text), "\uFFFD")
	if len(text) > maxSourceOutput {
		text = "…" + strings.ToValidUTF8(text[len(text)-maxSourceOutput:], "")
	}
	return text
}

// runHidden runs a command that nobody sees and returns its exit code and
// the end of its stderr.
func (s *session) runHidden(ctx context.Context, m node.Machine, argv []string, input string) (int, string, error) {
	id := api.NewID(api.CommandPrefix)
	own := map[string]string{"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
	err := m.StartCommand(ctx, guest.Command{
		ID: id, Argv: argv, Dir: s.rootDir(), Stdin: true,
		Env: environment(s.image.Config, m.Env(), s.env, own, false), User: runAs(s.image.Config, false),
	})
	if err != nil {
		return 0, "", err
	}
	if input != "" {
		if err := m.WriteStdin(ctx, id, []byte(input)); err != nil && !isOver(err) {
			return 0, "", err
		}
	}
	if err := m.CloseStdin(ctx, id); err != nil && !isOver(err) {
		return 0, "", err
	}
	var dec wire.Decoder
	code := killedCode
	var stderr []byte
	err = m.Attach(ctx, id, 0, func(_ int64, b []byte) error {
		return dec.Feed(b, func(r wire.Record) error {
			switch r.Kind {
			case wire.RecordStderr:
				stderr = append(stderr, r.Data...)
				if extra := len(stderr) - 2*maxSourceOutput; extra > 0 {
					stderr = stderr[extra:]
				}
			case wire.RecordExit:
				code = int(r.Code)
			}
			return nil
		})
	})
	if dec.Done() {
		err = nil
	}
	return code, string(stderr), err
}
