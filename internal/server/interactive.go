package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/glovebox-dev/glovebox/api"
)

const (
	// startTimeout is how long a new connection may take to say what to run.
	startTimeout = 30 * time.Second
	// pingEvery keeps proxies from closing a terminal that nobody types on.
	pingEvery = 20 * time.Second
	// maxMessage bounds one message of the client in bytes.
	maxMessage = 4 << 20
	// terminalChunk is the most that one message to the client holds.
	terminalChunk = 32 << 10
)

func (c *call) openInteractive() error {
	p, id, err := c.session()
	if err != nil {
		return err
	}
	token, err := p.NewInteractive(c.r.Context(), id)
	if err != nil {
		return err
	}
	return c.ok(api.InteractiveResponse{URL: c.terminalURL(), Token: token}, nil)
}

// terminalURL is on the address that the client used: what it reached once it
// reaches again, through whatever is in between.
func (c *call) terminalURL() string {
	base := c.s.publicURL
	if base == "" {
		base = "http://" + c.r.Host
		if c.r.TLS != nil || c.r.Header.Get("X-Forwarded-Proto") == "https" {
			base = "https://" + c.r.Host
		}
	}
	return "ws" + strings.TrimPrefix(strings.TrimRight(base, "/"), "http") + interactivePath
}

// terminal is the WebSocket at terminalURL. Its token is the authority, so
// that pages of any origin may connect.
func (c *call) terminal() error {
	if !strings.EqualFold(c.r.Header.Get("Upgrade"), "websocket") {
		return api.BadRequest("this is a WebSocket; connect to it with the url and token that POST …/interactive answers")
	}
	token := c.r.URL.Query().Get("token")
	if token == "" {
		return api.Errorf(api.CodeUnauthorized, "query token: is missing; append ?token= with the token that POST …/interactive answers")
	}
	project, session, err := c.s.control.RedeemInteractive(c.r.Context(), token)
	if err != nil {
		return err
	}
	p, err := c.s.control.Project(c.r.Context(), project)
	if err != nil {
		return err
	}
	c.s.terminals.Add(1)
	defer c.s.terminals.Done()
	conn, err := websocket.Accept(c.w, c.r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return nil // Accept has answered
	}
	defer conn.CloseNow() //nolint:errcheck // closed already, or of no use
	conn.SetReadLimit(maxMessage)
	t := &terminalConn{c: c, conn: conn}
	t.run(p, session)
	return nil
}

// terminalConn joins a WebSocket and a terminal.
type terminalConn struct {
	c    *call
	conn *websocket.Conn
	term Terminal
	gone atomic.Bool // the client is
}

// errClientGone ends what was done for a client that nothing can be told.
var errClientGone = errors.New("the client went away")

// exitMessage ends a terminal. Error says why there is no exit code.
type exitMessage struct {
	api.TerminalExit
	Error *api.Error `json:"error,omitempty"`
}

func (t *terminalConn) run(p Project, session string) {
	// The connection's own calls get the request's context, which does not
	// end with the server: ending it would cut the connection without a word.
	ctx, cancel := t.c.streamContext()
	defer cancel()
	start, err := t.readStart(ctx)
	if err == nil {
		t.term, err = p.OpenTerminal(ctx, session, start)
	}
	if err != nil {
		t.refuse(waitError(ctx, err))
		return
	}
	defer context.AfterFunc(ctx, func() { t.term.Close() })()
	var others sync.WaitGroup
	others.Go(t.readInput)
	others.Go(func() { t.ping(ctx) })
	err = t.writeOutput()
	t.finish(ctx, err)
	cancel()
	t.conn.CloseNow() //nolint:errcheck // of no use any more
	others.Wait()
	t.term.Close()
}

// readStart reads the first message.
func (t *terminalConn) readStart(ctx context.Context) (api.TerminalStart, error) {
	var start api.TerminalStart
	timeout, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	kind, message, err := t.conn.Read(timeout)
	if err != nil {
		return start, errClientGone
	}
	if kind != websocket.MessageText {
		return start, api.BadRequest("the first message must be a text message of type start")
	}
	if err := api.Unmarshal(message, &start); err != nil {
		return start, err
	}
	if start.Type != "start" {
		return start, api.BadRequest("field type: %.40q must be \"start\" in the first message", start.Type)
	}
	return start, nil
}

// refuse shows on the terminal why there will be none.
func (t *terminalConn) refuse(err error) {
	if errors.Is(err, errClientGone) || t.gone.Load() {
		return
	}
	e := t.c.clientError(err)
	_ = t.conn.Write(t.c.r.Context(), websocket.MessageBinary, []byte("glovebox: "+e.Message+"\r\n"))
	_ = t.send(exitMessage{TerminalExit: api.TerminalExit{Type: "exit", Code: 1}, Error: e})
	_ = t.conn.Close(websocket.StatusPolicyViolation, string(e.Code))
}

// readInput passes the client's messages on until it is gone, and hangs up
// then, which ends the output too. A terminal that does not read stops the
// reading here, and with it the client.
func (t *terminalConn) readInput() {
	defer t.term.Close()
	defer t.gone.Store(true)
	ctx := t.c.r.Context()
	for {
		kind, message, err := t.conn.Read(ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageText {
			t.control(ctx, message)
			continue
		}
		// What is typed at a command that has ended is lost, and no reason to
		// lose its last output too.
		_, _ = t.term.Write(message)
	}
}

// control handles a text message; what it does not know it ignores, as
// clients may know more.
func (t *terminalConn) control(ctx context.Context, message []byte) {
	var m api.TerminalResize
	if json.Unmarshal(message, &m) != nil || m.Type != "resize" {
		return
	}
	cols, rows := m.Cols.Or(0), m.Rows.Or(0)
	if cols < 1 || rows < 1 || cols > api.MaxTerminalSize || rows > api.MaxTerminalSize {
		return
	}
	if err := t.term.Resize(ctx, int(cols), int(rows)); err != nil {
		t.c.log.Debug("resize terminal", "error", err)
	}
}

// writeOutput returns nil when the terminal has ended and all was sent.
func (t *terminalConn) writeOutput() error {
	ctx := t.c.r.Context()
	buf := make([]byte, terminalChunk)
	for {
		n, err := t.term.Read(buf)
		if n > 0 {
			if err := t.conn.Write(ctx, websocket.MessageBinary, buf[:n]); err != nil {
				return errClientGone
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// finish tells the exit code, or closes without one.
func (t *terminalConn) finish(ctx context.Context, err error) {
	if ctx.Err() != nil && !t.gone.Load() {
		_ = t.conn.Close(websocket.StatusGoingAway, "the server is shutting down")
		return
	}
	var code int
	if err == nil {
		code, err = t.term.Wait(ctx)
	}
	if err != nil {
		t.refuse(err)
		return
	}
	if t.send(exitMessage{TerminalExit: api.TerminalExit{Type: "exit", Code: code}}) == nil {
		_ = t.conn.Close(websocket.StatusNormalClosure, "")
	}
}

func (t *terminalConn) send(message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return t.conn.Write(t.c.r.Context(), websocket.MessageText, text)
}

// ping has no deadline: a client that is stopped for a while keeps its
// terminal, and TCP notices the dead ones.
func (t *terminalConn) ping(ctx context.Context) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if t.conn.Ping(t.c.r.Context()) != nil {
				return
			}
		}
	}
}
