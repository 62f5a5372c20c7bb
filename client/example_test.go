package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
	"github.com/glovebox-dev/glovebox/internal/server"
	"github.com/glovebox-dev/glovebox/internal/server/fakecontrol"
)

// exampleServer stands for a server that is already running.
func exampleServer() (url, token string, stop func()) {
	control := fakecontrol.New()
	s, err := server.New(server.Config{Control: control, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	ts := httptest.NewServer(s)
	return ts.URL, fakecontrol.AlphaToken, func() { ts.CloseClientConnections(); ts.Close(); control.Close() }
}

func Example() {
	url, token, stop := exampleServer()
	defer stop()
	ctx := context.Background()

	c, err := client.New(url, token)
	if err != nil {
		log.Fatal(err)
	}
	defer c.CloseIdle()
	sandbox, err := c.CreateSandbox(ctx, api.CreateSandboxRequest{Name: "demo"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := sandbox.Delete(ctx); err != nil {
			log.Print(err)
		}
	}()

	cmd, err := sandbox.RunCommand(ctx, client.Cmd{
		Name: "echo", Args: []string{"hello", "from", "inside"}, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("exit code", cmd.ExitCode())
	// Output:
	// hello from inside
	// exit code 0
}

func ExampleSandbox_RunCommand_stdin() {
	url, token, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	c, _ := client.New(url, token)
	defer c.CloseIdle()
	sandbox, err := c.CreateSandbox(ctx, api.CreateSandboxRequest{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := sandbox.RunCommand(ctx, client.Cmd{Name: "cat", Stdin: strings.NewReader("piped in\n"), Stdout: os.Stdout}); err != nil {
		log.Fatal(err)
	}
	// Output: piped in
}

func ExampleCommand_Logs() {
	url, token, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	c, _ := client.New(url, token)
	defer c.CloseIdle()
	sandbox, err := c.CreateSandbox(ctx, api.CreateSandboxRequest{})
	if err != nil {
		log.Fatal(err)
	}
	cmd, err := sandbox.StartCommand(ctx, client.Cmd{Name: "both"})
	if err != nil {
		log.Fatal(err)
	}
	for line, err := range cmd.Logs(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s", line.Stream, line.Data)
	}
	if err := cmd.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("exit code", cmd.ExitCode())
	// Output:
	// stdout: out ☕
	// stderr: err
	// exit code 3
}

func ExampleSandbox_WriteFiles() {
	url, token, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	c, _ := client.New(url, token)
	defer c.CloseIdle()
	sandbox, err := c.CreateSandbox(ctx, api.CreateSandboxRequest{})
	if err != nil {
		log.Fatal(err)
	}
	if err := sandbox.WriteFiles(ctx, map[string][]byte{"data/in.txt": []byte("42\n"), "/etc/motd": []byte("hi\n")}); err != nil {
		log.Fatal(err)
	}
	r, err := sandbox.ReadFile(ctx, "data/in.txt")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	if _, err := io.Copy(os.Stdout, r); err != nil {
		log.Fatal(err)
	}
	_, err = sandbox.ReadFile(ctx, "data/out.txt")
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	// Output:
	// 42
	// true
}

func ExampleClient_ListSandboxes() {
	url, token, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	c, _ := client.New(url, token)
	defer c.CloseIdle()
	for _, name := range []string{"web-1", "web-2", "job-1"} {
		if _, err := c.CreateSandbox(ctx, api.CreateSandboxRequest{Name: name}); err != nil {
			log.Fatal(err)
		}
	}
	for sandbox, err := range c.ListSandboxes(ctx, client.ListOptions{NamePrefix: "web-"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(sandbox.Name, sandbox.Status)
	}
	// Output:
	// web-1 running
	// web-2 running
}
