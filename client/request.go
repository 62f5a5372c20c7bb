package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

const (
	retries      = 2
	retryWait    = 400 * time.Millisecond // doubles
	maxRetryWait = 20 * time.Second       // a longer Retry-After is not waited for
	maxAnswer    = 64 << 20               // bytes of a JSON answer
)

// do sends r, again where that is safe and may help, until it is answered
// 2xx; the caller closes the body.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	body, err := encodeBody(r)
	if err != nil {
		return nil, err
	}
	key := ""
	if r.key {
		key = newKey()
	}
	for attempt := 0; ; attempt++ {
		resp, err := c.send(ctx, r, body, key)
		if err == nil && resp.StatusCode < 300 {
			return resp, nil
		}
		wait := retryWait << attempt
		if err == nil {
			err, wait = answerError(resp), retryAfter(resp, wait)
			resp.Body.Close()
			if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < 500 {
				return nil, err
			}
		} else if !r.repeatable && !r.key && !neverSent(err) {
			return nil, err
		}
		if attempt >= retries || r.body != nil || wait > maxRetryWait || ctx.Err() != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}

func (c *Client) send(ctx context.Context, r request, body []byte, key string) (*http.Response, error) {
	var reader io.Reader
	switch {
	case r.body != nil:
		reader = r.body
	case body != nil:
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.url(r), reader)
	if err != nil {
		return nil, err
	}
	for k, v := range r.header {
		req.Header[k] = v
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	req.Header.Set("User-Agent", c.agent)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(req)
}

func encodeBody(r request) ([]byte, error) {
	if r.json == nil {
		return nil, nil
	}
	body, err := json.Marshal(r.json)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return body, nil
}

// neverSent tells that the server cannot have seen the request.
func neverSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func retryAfter(resp *http.Response, otherwise time.Duration) time.Duration {
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || seconds <= 0 {
		return otherwise
	}
	return time.Duration(seconds) * time.Second
}

// answerError makes an *api.Error of an answer that is not 2xx.
func answerError(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("read the server's error (status %d): %w", resp.StatusCode, err)
	}
	var body api.ErrorResponse
	if json.Unmarshal(text, &body) == nil && body.Error.Code != "" {
		body.Error.RetryAfter = retryAfter(resp, 0)
		return &body.Error
	}
	e := api.Errorf(codeOf(resp.StatusCode), "%s", http.StatusText(resp.StatusCode))
	e.Missing = resp.StatusCode == http.StatusNotFound && len(text) == 0
	if len(text) > 0 {
		e = api.Errorf(e.Code, "status %d that is not of this API (is the URL right?): %.200q", resp.StatusCode, text)
	}
	return e
}

// codeOf is for answers without a code, such as those of a proxy between.
func codeOf(status int) api.Code {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return api.CodeUnauthorized
	case status == http.StatusNotFound:
		return api.CodeNotFound
	case status == http.StatusTooManyRequests:
		return api.CodeRateLimited
	case status >= 500:
		return api.CodeUnavailable
	}
	return api.CodeBadRequest
}

// decodeAnswer reads one JSON value. An answer whose headers went out long
// before its end may hold an error instead of what was asked for.
func decodeAnswer(resp *http.Response, out any) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	var failed struct {
		Error *api.Error `json:"error"`
	}
	if json.Unmarshal(text, &failed) == nil && failed.Error != nil && failed.Error.Code != "" {
		return failed.Error
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("the server's answer is not what this client knows (is the URL right?): %w", err)
	}
	return nil
}
