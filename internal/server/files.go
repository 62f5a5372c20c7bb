package server

import (
	"errors"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/api"
)

const (
	// A client that still sends when the answer comes may never read it: the
	// rest of a refused upload is taken, within these bounds.
	drainTime  = 5 * time.Second
	drainBytes = 1 << 30
	// readAhead is how much of a file is read before the headers go out: for
	// less than that the true length is known, whatever its metadata says.
	readAhead = 64 << 10
)

func (c *call) writeFiles() error {
	p, id, err := c.session()
	if err != nil {
		return err
	}
	if err := p.WriteFiles(c.r.Context(), id, c.cwdHeader(), c.r.Body); err != nil {
		c.drainBody()
		return err
	}
	return c.ok(api.Empty{}, nil)
}

// cwdHeader reads x-cwd. The published client sends one byte for each
// character up to U+00FF, others send UTF-8.
func (c *call) cwdHeader() string {
	v := c.r.Header.Get("X-Cwd")
	if utf8.ValidString(v) {
		return v
	}
	latin := make([]rune, len(v))
	for i := range len(v) {
		latin[i] = rune(v[i])
	}
	return string(latin)
}

// drainBody reads on, so that the client gets to the answer.
func (c *call) drainBody() {
	ctl := http.NewResponseController(c.w)
	if ctl.SetReadDeadline(time.Now().Add(drainTime)) != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, c.r.Body, drainBytes); !errors.Is(err, io.EOF) {
		c.closeAfter()
		return
	}
	_ = ctl.SetReadDeadline(time.Time{})
}

// closeAfter lets the connection take no other request. In HTTP/2 that is a
// stream's own matter, and the header would end the whole connection.
func (c *call) closeAfter() {
	if c.r.ProtoMajor == 1 {
		c.w.Header().Set("Connection", "close")
	}
}

func (c *call) readFile() error {
	var req api.PathRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	p, id, err := c.session()
	if err != nil {
		return err
	}
	content, size, err := p.ReadFile(c.r.Context(), id, req.Path, req.Cwd)
	if err != nil {
		return err
	}
	defer content.Close()
	return c.sendFile(content, size)
}

// sendFile streams a file. The length is announced where it is known, and a
// file that turns out to be shorter, or unreadable in its middle, cuts the
// connection: it must not look whole.
func (c *call) sendFile(content io.Reader, size int64) error {
	head := make([]byte, readAhead)
	n, err := io.ReadFull(content, head)
	head = head[:n]
	whole := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !whole {
		return err
	}
	c.w.Header().Set("Content-Type", "application/octet-stream")
	switch {
	case whole:
		c.setLength(int64(n))
	case size > int64(n):
		c.setLength(size)
		content = io.LimitReader(content, size-int64(n))
	}
	c.w.WriteHeader(http.StatusOK)
	if _, err := c.w.Write(head); err != nil || whole {
		return err
	}
	sent, err := io.Copy(c.w, content)
	if err == nil && size > int64(n) && int64(n)+sent < size {
		err = io.ErrUnexpectedEOF // it shrank while it was read
	}
	return err
}

func (c *call) mkdir() error {
	var req api.PathRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	p, id, err := c.session()
	if err != nil {
		return err
	}
	return c.ok(api.Empty{}, p.Mkdir(c.r.Context(), id, req.Path, req.Cwd))
}
