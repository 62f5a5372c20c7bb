package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
)

func (a *app) createCommand() *cobra.Command {
	var f sandboxFlags
	var ephemeral bool
	var snapshot string
	var k keepFlags
	var files []string
	var token, start string
	var wake bool
	cmd := &cobra.Command{
		Use:   "create [flags]",
		Short: "Create a sandbox and print its name",
		Long: `Creates a sandbox on the server and prints its name, and the address of each
port. It lives until its time-out, stop or rm. Unless it is --ephemeral, its
files outlive the stop, and the next command starts it again.`,
		Example: `glovebox create --name web --port 3000 --env DEBUG=1
glovebox create --image python:3.12-slim --timeout 1h --network deny-all`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := f.request(a)
			if err != nil {
				return err
			}
			persistent := !ephemeral
			req.Persistent = &persistent
			if snapshot != "" {
				req.Source = &api.Source{Type: api.SourceSnapshot, SnapshotID: snapshot}
			}
			if req.SnapshotExpiration, req.KeepLastSnapshots, err = k.values(); err != nil {
				return err
			}
			req.PreviewToken, req.WakeOnRequest = token, wake
			if start != "" {
				req.StartCommand = &api.StartCommand{Command: "sh", Args: []string{"-c", start}}
			}
			return a.create(cmd.Context(), req, files)
		},
	}
	f.register(cmd.Flags(), "5m")
	cmd.Flags().BoolVar(&ephemeral, "ephemeral", false, "keep nothing after the stop")
	cmd.Flags().StringVar(&snapshot, "snapshot", "", "snapshot to start from, in place of an image")
	cmd.Flags().StringVar(&token, "preview-token", "", "token that previews ask for, 16 characters or more (default: they are public)")
	cmd.Flags().StringVar(&start, "start", "", "shell command that every session begins with, such as the server behind a port")
	cmd.Flags().BoolVar(&wake, "wake", false, "have a request to a port's address start the sandbox when it is stopped")
	k.register(cmd.Flags())
	cmd.Flags().StringArrayVar(&files, "file", nil, "SRC[:DST] to put in, a file or directory; repeatable")
	return cmd
}

func (a *app) create(ctx context.Context, req api.CreateSandboxRequest, files []string) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	sandbox, err := c.CreateSandbox(ctx, req)
	if err != nil {
		return err
	}
	if err := putFiles(ctx, sandbox, files); err != nil {
		cleanup, cancel := afterwards(ctx)
		defer cancel()
		// It was made for these files, and nobody has its name yet.
		if delErr := sandbox.Delete(cleanup); delErr != nil {
			a.note("sandbox %s stays: %v", sandbox.Name(), delErr)
		}
		return err
	}
	return a.printMade(sandbox)
}

// printMade prints a new sandbox.
func (a *app) printMade(sandbox *client.Sandbox) error {
	if a.json {
		return a.printJSON(describe(sandbox))
	}
	fmt.Fprintln(a.out, sandbox.Name())
	for _, r := range sandbox.Routes() {
		fmt.Fprintf(a.out, "%d  %s\n", r.Port, r.URL)
	}
	return nil
}

func describe(s *client.Sandbox) api.SandboxAndSession {
	return api.SandboxAndSession{Sandbox: s.Info(), Session: s.Session(), Routes: s.Routes()}
}
