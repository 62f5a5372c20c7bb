package client

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/glovebox-dev/glovebox/api"
)

// maxLine bounds one line of a stream in bytes.
const maxLine = 16 << 20

// errCut is the end of a stream whose last line did not come.
var errCut = errors.New("the stream ended early: the connection was cut")

// lines reads a stream of JSON lines. Not safe for concurrent use.
type lines struct {
	body io.ReadCloser
	scan *bufio.Scanner
}

// line is one item: a command, or a piece of output.
type line struct {
	command *api.Command
	log     api.LogLine
}

func newLines(resp *http.Response) (*lines, error) {
	if t := resp.Header.Get("Content-Type"); t != "application/x-ndjson" {
		resp.Body.Close()
		return nil, fmt.Errorf("the server answered %q where a stream was expected (is the URL right?)", t)
	}
	scan := bufio.NewScanner(resp.Body)
	scan.Buffer(make([]byte, 0, 64<<10), maxLine)
	return &lines{body: resp.Body, scan: scan}, nil
}

// next returns the next item; io.EOF after the last, and the *api.Error of an
// error item.
func (l *lines) next() (line, error) {
	text, err := l.text()
	if err != nil {
		return line{}, err
	}
	return parseLine(text)
}

// text returns the next line that is not empty, until the next call, or
// io.EOF after the last.
func (l *lines) text() ([]byte, error) {
	for l.scan.Scan() {
		if len(l.scan.Bytes()) > 0 { // an empty one keeps an idle connection open
			return l.scan.Bytes(), nil
		}
	}
	if err := l.scan.Err(); err != nil {
		return nil, fmt.Errorf("%w (%w)", errCut, err)
	}
	return nil, io.EOF
}

func parseLine(text []byte) (line, error) {
	var item struct {
		Command *api.Command    `json:"command"`
		Stream  string          `json:"stream"`
		Data    json.RawMessage `json:"data"`
		// Encoding is missing where the server sends text.
		Encoding string `json:"encoding"`
	}
	if err := json.Unmarshal(text, &item); err != nil {
		return line{}, fmt.Errorf("%w (unreadable line: %w)", errCut, err)
	}
	if item.Command != nil {
		return line{command: item.Command}, nil
	}
	if item.Stream == api.StreamError {
		var e api.Error
		if err := json.Unmarshal(item.Data, &e); err != nil {
			return line{}, fmt.Errorf("unreadable error in the stream: %w", err)
		}
		return line{}, &e
	}
	log := api.LogLine{Stream: item.Stream}
	if err := json.Unmarshal(item.Data, &log.Data); err != nil {
		return line{}, fmt.Errorf("unreadable output in the stream: %w", err)
	}
	if item.Encoding == api.EncodingBase64 {
		raw, err := base64.StdEncoding.DecodeString(log.Data)
		if err != nil {
			return line{}, fmt.Errorf("unreadable output in the stream: %w", err)
		}
		log.Data = string(raw)
	}
	return line{log: log}, nil
}

func (l *lines) close() { l.body.Close() }
