package api

import (
	"math"
	"net/url"
	"path"
	"strings"
	"time"
)

// Validate checks the source of a create call.
func (s *Source) Validate() error {
	switch s.Type {
	case SourceSnapshot:
		if s.SnapshotID == "" {
			return BadRequest("field source.snapshotId: is missing; name the snapshot to start from")
		}
		return nil
	case SourceGit, SourceTarball:
	case "":
		return BadRequest("field source.type: is missing; use git, tarball or snapshot")
	default:
		return BadRequest("field source.type: %q is unknown; use git, tarball or snapshot", clip(s.Type))
	}
	u, err := url.Parse(s.URL)
	switch {
	case s.URL == "" || err != nil || u.Host == "" || strings.ContainsFunc(s.URL, isControl):
		return BadRequest("field source.url: must be a complete http or https URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return BadRequest("field source.url: scheme %q is not supported; use http or https", clip(u.Scheme))
	}
	if s.Type == SourceTarball {
		return nil
	}
	if d, set := s.Depth.Get(); set && (d < 1 || d > math.MaxInt32) {
		return BadRequest("field source.depth: %d is not a depth; use 1 or more", d)
	}
	if strings.HasPrefix(s.Revision, "-") || strings.ContainsFunc(s.Revision, isControl) {
		return BadRequest("field source.revision: %q is no branch, tag or commit", clip(s.Revision))
	}
	for field, v := range map[string]string{"username": s.Username, "password": s.Password} {
		if strings.ContainsAny(v, "\x00\r\n") {
			return BadRequest("field source.%s: must not hold NUL or line breaks", field)
		}
	}
	if s.Repository() == "" {
		return BadRequest("field source.url: names no repository")
	}
	return nil
}

// Repository is the name of a git source's repository: the directory, in the
// working directory of the sandbox, that the clone goes into.
func (s *Source) Repository() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return ""
	}
	name := strings.TrimSuffix(path.Base(path.Clean("/"+u.Path)), ".git")
	if name == "/" || name == "." || name == ".." || strings.ContainsFunc(name, isControl) {
		return ""
	}
	return name
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }

// Validate checks a command and returns its time-out, 0 where it has none.
func (r *RunCommandRequest) Validate(l Limits) (time.Duration, error) {
	if r.Command == "" {
		return 0, BadRequest("field command: is empty; name the program to run")
	}
	if err := ValidateEncoding(r.Encoding); err != nil {
		return 0, err
	}
	if len(r.Args) > MaxCommandArgs {
		return 0, BadRequest("field args: has %d entries, at most %d are allowed", len(r.Args), MaxCommandArgs)
	}
	for field, values := range map[string][]string{"command": {r.Command}, "args": r.Args, "cwd": {r.Cwd}} {
		for _, v := range values {
			if strings.Contains(v, "\x00") {
				return 0, BadRequest("field %s: must not hold NUL", field)
			}
		}
	}
	if len(r.Cwd) > MaxPathLength {
		return 0, BadRequest("field cwd: is longer than %d bytes", MaxPathLength)
	}
	if err := l.ValidateEnv(r.Env); err != nil {
		return 0, err
	}
	ms, set := r.Timeout.Get()
	if !set {
		return 0, nil
	}
	if ms < MinCommandTimeout.Milliseconds() {
		return 0, BadRequest("field timeout: %d ms is too short; use at least %d", ms, MinCommandTimeout.Milliseconds())
	}
	return Milliseconds(ms), nil
}

// Milliseconds is ms as a duration; what would overflow (292 years) is the
// longest duration there is.
func Milliseconds(ms int64) time.Duration {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}

// ValidateSignal returns the number of a signal, 15 where none is given. 0
// asks only whether the command runs.
func ValidateSignal(s Int) (int, error) {
	v := s.Or(DefaultSignal)
	if v < 0 || v > MaxSignal {
		return 0, BadRequest("field signal: %d is no signal; use 0 to %d", v, MaxSignal)
	}
	return int(v), nil
}

// ValidatePath checks the path and cwd of a file call.
func ValidatePath(field, p string) error {
	switch {
	case p == "":
		return BadRequest("field %s: is empty", field)
	case strings.Contains(p, "\x00"):
		return BadRequest("field %s: must not hold NUL", field)
	case len(p) > MaxPathLength:
		return BadRequest("field %s: is longer than %d bytes", field, MaxPathLength)
	}
	return nil
}

// ValidateEncoding checks an encoding of output.
func ValidateEncoding(s string) error {
	if s != "" && s != EncodingBase64 {
		return BadRequest("field encoding: %.40q is unknown; leave it out for text, or use %q", s, EncodingBase64)
	}
	return nil
}
