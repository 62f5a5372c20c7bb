package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/client"
)

// transferMiB is what one transfer carries, over all its connections.
const transferMiB = 256

// The aims of a transfer, in ms: 3 Gbit/s untouched, 1 Gbit/s opened.
const (
	untouchedAim = transferMiB * 8 * 1.048576 / 3
	openedAim    = transferMiB * 8 * 1.048576 / 1
)

func init() {
	title := fmt.Sprintf("%d MiB from a server outside", transferMiB)
	add(bench{
		name: "download", title: title, unit: "ms", rounds: part(4),
		open: openTransfer(1),
		aims: []aim{{row: untouchedRow, most: untouchedAim}, {row: openedRow, most: openedAim}},
	})
	add(bench{name: "downloads", title: title + ", over 64 connections", unit: "ms", rounds: part(4), open: openTransfer(64)})
	add(bench{
		name: "connect", title: "a connection to a server outside, made inside: name, TCP, one byte", unit: "ms", rounds: part(4), open: openConnect,
		aims: []aim{{row: manyNamesRow, over: fewNamesRow, most: 1.5}},
	})
}

const (
	untouchedRow = "glovebox, TCP untouched"
	openedRow    = "glovebox, TLS opened for a rule"
	fewNamesRow  = "glovebox, a policy of 10 names"
	manyNamesRow = "glovebox, a policy of 10,000 names"
)

// transfers are the ways of a transfer; a client that reads in large pieces
// where it can, so that what is measured is the way and not its system calls.
var transfers = []struct{ row, policy, scheme string }{
	{untouchedRow, `"allow-all"`, "tcp"},
	{"glovebox, HTTP judged by request", `{"allow":["` + originName + `"]}`, "tcp"},
	{"glovebox, TLS untouched", `{"allow":["` + originName + `"]}`, "https"},
	{openedRow, `{"allow":{"` + originName + `":[{"transform":[{"headers":{"x-added":"1"}}]}]}}`, "https"},
}

// fetch gets argv[2] bytes over each of argv[3] connections at once, with TLS
// or without.
const fetch = `
import socket, ssl, sys, threading
name, size, n, tls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "https"
context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
got = []
def get():
    s = socket.create_connection((name, 443 if tls else 80))
    if tls: s = context.wrap_socket(s, server_hostname=name)
    s.sendall(b"GET /zeros/%d HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (size, name.encode()))
    buf, total = bytearray(1 << 20), 0
    while True:
        k = s.recv_into(buf)
        if k == 0: break
        total += k
    got.append(total)
threads = [threading.Thread(target=get) for _ in range(n)]
for t in threads: t.start()
for t in threads: t.join()
sys.exit(len(got) != n or min(got) < size)
`

// policies by what a sandbox of theirs is for.
func policyOf(text string) (*api.NetworkPolicy, error) {
	p := &api.NetworkPolicy{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		return nil, fmt.Errorf("policy %.80s: %w", text, err)
	}
	return p, nil
}

// manyNames is a policy of n names, the last of which is the origin.
func manyNames(n int) string {
	var names []string
	for i := range n - 1 {
		names = append(names, fmt.Sprintf("%q", fmt.Sprintf("host-%d.example.org", i)))
	}
	return `{"allow":[` + strings.Join(append(names, strconv.Quote(originName)), ",") + `]}`
}

// guestOf starts a sandbox with a policy.
func guestOf(ctx context.Context, c *client.Client, s *scope, policy string) (*client.Sandbox, error) {
	p, err := policyOf(policy)
	if err != nil {
		return nil, err
	}
	persistent := false
	box, err := c.CreateSandbox(ctx, api.CreateSandboxRequest{Persistent: &persistent, NetworkPolicy: p, Timeout: api.IntOf(lifetime.Milliseconds())})
	if err != nil {
		return nil, err
	}
	s.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		return box.Delete(ctx)
	})
	return box, nil
}

func openTransfer(connections int) func(context.Context, *rig, *scope) ([]contender, error) {
	return func(ctx context.Context, r *rig, s *scope) ([]contender, error) {
		c, err := r.outsideServer(ctx, s)
		if err != nil {
			return nil, err
		}
		var out []contender
		for _, k := range transfers {
			box, err := guestOf(ctx, c, s, k.policy)
			if err != nil {
				return nil, err
			}
			size := strconv.Itoa(transferMiB << 20 / connections)
			out = append(out, contender{rows: []string{k.row}, sample: func(ctx context.Context, put func(string, float64)) error {
				start := time.Now()
				if err := insideOK(ctx, box, nil, "python3", "-c", fetch, originName, size, strconv.Itoa(connections), k.scheme); err != nil {
					return err
				}
				put(k.row, millis(time.Since(start)))
				return nil
			}})
		}
		return out, nil
	}
}

// connects makes connections one after another and prints the mean in ms.
const connects = `
import socket, sys, time
n = 50
start = time.monotonic()
for i in range(n):
    s = socket.create_connection((sys.argv[1], 9999))
    s.sendall(b"\x00"); s.recv(1); s.close()
print((time.monotonic() - start) * 1000 / n)
`

func openConnect(ctx context.Context, r *rig, s *scope) ([]contender, error) {
	c, err := r.outsideServer(ctx, s)
	if err != nil {
		return nil, err
	}
	var out []contender
	for _, k := range []struct{ row, policy string }{
		{fewNamesRow, manyNames(10)}, {manyNamesRow, manyNames(10_000)}, {"glovebox, allow-all", `"allow-all"`},
	} {
		box, err := guestOf(ctx, c, s, k.policy)
		if err != nil {
			return nil, err
		}
		out = append(out, contender{rows: []string{k.row}, sample: func(ctx context.Context, put func(string, float64)) error {
			var said bytes.Buffer
			if err := insideOK(ctx, box, &said, "python3", "-c", connects, originName); err != nil {
				return err
			}
			each, err := strconv.ParseFloat(strings.TrimSpace(said.String()), 64)
			put(k.row, each)
			return err
		}})
	}
	return out, nil
}

// insideOK runs a command that must succeed.
func insideOK(ctx context.Context, box *client.Sandbox, stdout *bytes.Buffer, argv ...string) error {
	var errs bytes.Buffer
	cmd := client.Cmd{Name: argv[0], Args: argv[1:], Stderr: &errs}
	if stdout != nil {
		cmd.Stdout = stdout
	}
	done, err := box.RunCommand(ctx, cmd)
	if err == nil && done.ExitCode() != 0 {
		err = fmt.Errorf("%.60s: exit code %d: %s", argv, done.ExitCode(), errs.String())
	}
	return err
}
