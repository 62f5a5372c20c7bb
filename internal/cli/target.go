package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
)

// errNoServer: nothing says where a server is, and none holds the data
// directory.
var errNoServer = errors.New("no server")

// socketPath is where a server accepts its own machine's root without a token.
func (a *app) socketPath() string { return filepath.Join(a.dataDir, "glovebox.sock") }

// connect returns a client of the server that --url names or, without it, of
// the one that holds the data directory.
func (a *app) connect(ctx context.Context) (*client.Client, error) {
	c, err := a.find(ctx)
	if errors.Is(err, errNoServer) {
		return nil, fail("no server is running on "+a.dataDir, "start one with glovebox serve, or set "+envURL+" and "+envToken)
	}
	return c, err
}

// sandbox connects and returns the sandbox of that name.
func (a *app) sandbox(ctx context.Context, name string) (*client.Sandbox, error) {
	c, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c.GetSandbox(ctx, name)
}

// find is connect, with errNoServer where there is no server to connect to.
func (a *app) find(ctx context.Context) (*client.Client, error) {
	if a.url != "" {
		if a.token == "" {
			return nil, fail("$"+envToken+" is not set, and the server at "+a.url+" wants a token",
				"export "+envToken+"=$(glovebox token create --project P --data-dir D), on the server's machine")
		}
		return client.New(a.url, a.token, a.clientOptions()...)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", a.socketPath())
	switch {
	case err == nil:
		conn.Close()
		return a.clientOver(func(ctx context.Context) (net.Conn, error) {
			return d.DialContext(ctx, "unix", a.socketPath())
		}, "")
	case errors.Is(err, os.ErrPermission):
		return nil, fail("the data directory "+a.dataDir+" is another user's",
			"set "+envURL+" and "+envToken+", or run it as that user (sudo)")
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return nil, errNoServer
	}
	return nil, fmt.Errorf("connect to the server on %s: %w", a.dataDir, err)
}

// clientOver makes a client whose connections come from dial.
func (a *app) clientOver(dial func(context.Context) (net.Conn, error), token string) (*client.Client, error) {
	transport := &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		MaxIdleConnsPerHost: 16,
		DisableCompression:  true,
	}
	opts := append(a.clientOptions(), client.WithHTTPClient(&http.Client{Transport: transport}))
	return client.New("http://localhost", token, opts...)
}

func (a *app) clientOptions() []client.Option {
	opts := []client.Option{client.WithUserAgent("glovebox-cli/" + readVersion().Version)}
	if a.project != "" {
		opts = append(opts, client.WithProject(a.project))
	}
	return opts
}

// remedyOfCode is what to do about an error that the server answered.
func remedyOfCode(err error) string {
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return ""
	}
	switch e.Code {
	case api.CodeUnauthorized:
		return "set $" + envToken + " to a token of this server: glovebox token create --project P --data-dir D"
	case api.CodeNotFound:
		if strings.HasPrefix(e.Message, "snapshot ") {
			return "see what is there: glovebox snapshot ls"
		}
		return "see what is there: glovebox ls"
	case api.CodeSandboxStopped:
		return "create a new sandbox, or use a persistent one"
	case api.CodeConflict:
		return "end the other use of it first"
	case api.CodeRateLimited, api.CodeUnavailable, api.CodeImageNotReady:
		return "try again in a moment; glovebox status tells what the server is doing"
	case api.CodeInternal:
		return "see the server's log"
	case api.CodeBadRequest, api.CodeTimeoutInvalid:
		return "correct what the message names; glovebox help shows the flags"
	}
	return ""
}
