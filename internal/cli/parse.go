package cli

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
)

// parseSize reads "512m", "2g", "2GiB" or plain bytes.
func parseSize(flag, s string) (int64, error) {
	lower := strings.ToLower(strings.TrimSpace(s))
	lower = strings.TrimSuffix(strings.TrimSuffix(lower, "b"), "i")
	shift := 0
	if lower != "" {
		if i := strings.IndexByte("kmgt", lower[len(lower)-1]); i >= 0 {
			shift = 10 * (i + 1)
			lower = lower[:len(lower)-1]
		}
	}
	n, err := strconv.ParseFloat(lower, 64)
	if err != nil || !(n > 0 && n*float64(int64(1)<<shift) <= 1<<50) { // so NaN is none, either
		return 0, fail(fmt.Sprintf("%s %q is no size", flag, s), "write a number with k, m or g, such as "+flag+" 2g")
	}
	return int64(n * float64(int64(1)<<shift)), nil
}

// parseDuration reads what time.ParseDuration does, and plain seconds.
func parseDuration(flag, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		if n, numErr := strconv.ParseFloat(s, 64); numErr == nil {
			d, err = time.Duration(n*float64(time.Second)), nil
		}
	}
	if err != nil || d <= 0 {
		return 0, fail(fmt.Sprintf("%s %q is no duration", flag, s), "write it like "+flag+" 90s or "+flag+" 5m")
	}
	return d, nil
}

// place is one side of a copy: a path here, or in a sandbox.
type place struct {
	sandbox string // "" for here
	path    string
}

// parsePlace reads SANDBOX:PATH. A path here that holds a colon is written
// with a slash or dot in front of it, as for scp.
func parsePlace(s string) place {
	before, after, found := strings.Cut(s, ":")
	if !found || before == "" || strings.ContainsAny(before, "/.") {
		return place{path: s}
	}
	if after == "" {
		after = "."
	}
	return place{sandbox: before, path: after}
}

// parseFile reads SRC[:DST] of --file; without DST the file keeps its name in
// the working directory.
func parseFile(s string) (src, dst string) {
	src, dst, found := strings.Cut(s, ":")
	if !found || dst == "" {
		dst = path.Base(strings.TrimRight(src, "/"))
	}
	return src, dst
}
