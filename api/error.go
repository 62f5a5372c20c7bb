package api

import (
	"fmt"
	"time"
)

// Code is the machine-readable class of an Error. The set is closed; the
// server alone knows which HTTP status belongs to which code.
type Code string

// All codes of the API.
const (
	CodeBadRequest          Code = "bad_request"             // 400
	CodeTimeoutInvalid      Code = "sandbox_timeout_invalid" // 400
	CodeUnauthorized        Code = "unauthorized"            // 401
	CodeNotFound            Code = "not_found"               // 404
	CodeConflict            Code = "conflict"                // 409
	CodeImageNotReady       Code = "image_not_ready"         // 409
	CodeSandboxStopped      Code = "sandbox_stopped"         // 410
	CodeSnapshotNotFound    Code = "snapshot_not_found"      // 410
	CodeSandboxStopping     Code = "sandbox_stopping"        // 422
	CodeSandboxSnapshotting Code = "sandbox_snapshotting"    // 422
	CodeDriveNotInitialized Code = "drive_not_initialized"   // 422
	CodeRateLimited         Code = "rate_limited"            // 429, with Retry-After
	CodeInternal            Code = "internal"                // 500; nothing was started
	CodeUnavailable         Code = "unavailable"             // 503; nothing was started
	CodeInsufficientStorage Code = "insufficient_storage"    // 507; nothing was started
	CodeSandboxNotListening Code = "SANDBOX_NOT_LISTENING"   // 502, previews only
)

// Error is every error that a client may see.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// RetryAfter, with CodeRateLimited and CodeUnavailable, is how long the
	// client should wait before it repeats the request.
	RetryAfter time.Duration `json:"-"`
	// Missing, with CodeNotFound, says that a file is missing in a sandbox
	// that is there: the answer to that has no body.
	Missing bool `json:"-"`
}

// ErrorResponse is the body of every answer that is an error.
type ErrorResponse struct {
	Error Error `json:"error"`
}

func (e *Error) Error() string {
	if e.Code == "" {
		return e.Message
	}
	return e.Message + " (" + string(e.Code) + ")"
}

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// BadRequest makes an Error for a request that must be changed; the message
// should name the field and what it may be.
func BadRequest(format string, args ...any) *Error {
	return Errorf(CodeBadRequest, format, args...)
}

// NotFound makes an Error for an object that is not there or belongs to
// another project: both read the same.
func NotFound(kind, id string) *Error {
	return Errorf(CodeNotFound, "%s %q does not exist in this project; list what is there, or check the id", kind, clip(id))
}

// clip bounds what a message repeats of a client's input.
func clip(s string) string {
	const most = 140
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
