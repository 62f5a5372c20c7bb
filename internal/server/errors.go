package server

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/glovebox-dev/glovebox/api"
)

// statuses is the one place where codes become HTTP statuses. Clients repeat
// a request that was answered 429 or 5xx.
var statuses = map[api.Code]int{
	api.CodeBadRequest:          http.StatusBadRequest,
	api.CodeTimeoutInvalid:      http.StatusBadRequest,
	api.CodeUnauthorized:        http.StatusUnauthorized,
	api.CodeNotFound:            http.StatusNotFound,
	api.CodeConflict:            http.StatusConflict,
	api.CodeImageNotReady:       http.StatusConflict,
	api.CodeSandboxStopped:      http.StatusGone,
	api.CodeSnapshotNotFound:    http.StatusGone,
	api.CodeSandboxStopping:     http.StatusUnprocessableEntity,
	api.CodeSandboxSnapshotting: http.StatusUnprocessableEntity,
	api.CodeDriveNotInitialized: http.StatusUnprocessableEntity,
	api.CodeRateLimited:         http.StatusTooManyRequests,
	api.CodeInternal:            http.StatusInternalServerError,
	api.CodeUnavailable:         http.StatusServiceUnavailable,
	api.CodeInsufficientStorage: http.StatusInsufficientStorage,
	api.CodeSandboxNotListening: http.StatusBadGateway,
}

// statusOf returns the status of a code, 500 for one that the table lacks.
func statusOf(code api.Code) int {
	if s, ok := statuses[code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// clientError turns any error into one that a client may see. What is not an
// *api.Error is logged with the request's id and told by that id alone.
func (c *call) clientError(err error) *api.Error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	if c.w.failed || c.r.Context().Err() != nil || errors.Is(err, context.Canceled) {
		return api.Errorf(api.CodeUnavailable, "the request was cancelled before it was done; repeat it")
	}
	c.log.LogAttrs(context.WithoutCancel(c.r.Context()), slog.LevelError, "request failed", slog.String("error", err.Error()))
	return api.Errorf(api.CodeInternal,
		"the server failed at this request and did nothing; repeat it, and if it fails again look for %s in the server's log", c.id)
}

// fail answers err, unless the answer has begun: then it cuts the connection,
// so that nobody takes what was sent for the whole.
func (c *call) fail(err error) {
	if c.w.wrote {
		c.clientError(err) //nolint:errcheck // for the log alone
		panic(http.ErrAbortHandler)
	}
	c.writeError(c.clientError(err))
}

func (c *call) writeError(e *api.Error) {
	if e.Missing {
		c.w.WriteHeader(http.StatusNotFound)
		return
	}
	status := statusOf(e.Code)
	switch status {
	case http.StatusUnauthorized:
		c.w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		c.w.Header().Set("Retry-After", retryAfter(e.RetryAfter))
	}
	c.writeJSON(status, api.ErrorResponse{Error: *e})
}

// retryAfter is in whole seconds and never 0, which clients take for none.
func retryAfter(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}
