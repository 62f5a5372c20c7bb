package fakecontrol

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/server"
)

// NewInteractive makes a token.
func (p *Project) NewInteractive(_ context.Context, sessionID string) (string, error) {
	if _, err := p.session(sessionID, true); err != nil {
		return "", err
	}
	token := p.c.id("it_")
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.interactive[token] = [2]string{p.name, sessionID}
	return token, nil
}

// terminal is a fake shell: it echoes what is typed, "exit N" ends it with N,
// "flood N" prints N bytes, and resizes are shown.
type terminal struct {
	c    *Control
	out  *io.PipeReader
	all  io.Reader      // a greeting, then out
	in   *io.PipeWriter // the shell's end of out
	once sync.Once
	mu   sync.Mutex
	line strings.Builder
	code int
	done chan struct{}
}

// OpenTerminal refuses a cwd of "/missing".
func (p *Project) OpenTerminal(_ context.Context, sessionID string, start api.TerminalStart) (server.Terminal, error) {
	if _, err := p.session(sessionID, true); err != nil {
		return nil, err
	}
	if start.Cwd == "/missing" {
		return nil, api.BadRequest("field cwd: %q does not exist", start.Cwd)
	}
	p.c.count("OpenTerminal")
	t := &terminal{c: p.c, done: make(chan struct{})}
	t.out, t.in = io.Pipe()
	greeting := fmt.Sprintf("%s %s %s %dx%d\r\n", start.Command, strings.Join(start.Args, " "), strings.Join(start.Env, " "), start.Cols.Or(0), start.Rows.Or(0))
	t.all = io.MultiReader(strings.NewReader(greeting), t.out)
	return t, nil
}

func (t *terminal) print(format string, args ...any) { fmt.Fprintf(t.in, format, args...) }

func (t *terminal) Read(p []byte) (int, error) { return t.all.Read(p) }

func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range p {
		if b != '\n' {
			t.line.WriteByte(b)
			continue
		}
		line := t.line.String()
		t.line.Reset()
		var n int
		if _, err := fmt.Sscanf(line, "exit %d", &n); err == nil {
			t.end(n)
			continue
		}
		if _, err := fmt.Sscanf(line, "flood %d", &n); err == nil {
			t.print("%s\r\n", strings.Repeat("y", n))
			continue
		}
		t.print("%s\r\n", line)
	}
	return len(p), nil
}

func (t *terminal) Resize(_ context.Context, cols, rows int) error {
	t.print("size %dx%d\r\n", cols, rows)
	return nil
}

func (t *terminal) end(code int) {
	t.once.Do(func() {
		t.code = code
		close(t.done)
		t.in.Close()
	})
}

func (t *terminal) Wait(ctx context.Context) (int, error) {
	select {
	case <-t.done:
		return t.code, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Close is a hang-up: signal 1.
func (t *terminal) Close() error {
	t.once.Do(func() {
		t.c.count("HangUp")
		t.code = 129
		close(t.done)
		t.in.Close()
	})
	t.out.CloseWithError(io.EOF)
	return nil
}
