package preview

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/glovebox-dev/glovebox/api"
)

// How a client brings the token of a preview that asks for one. All three are
// taken out of the request: the app never sees the token.
const (
	TokenHeader = "X-Glovebox-Preview-Token"
	TokenParam  = "__preview_token"
	tokenCookie = "glovebox_preview"
)

// admit tells whether the request may pass, and answers it where it may not.
// A browser comes with the token in a link once, gets it as a cookie, and is
// sent to the same address without it, so that it stays out of its history,
// of referrers and of what users copy.
func admit(w http.ResponseWriter, r *http.Request, t Target) bool {
	given, query := takeToken(r)
	for _, token := range given {
		if t.Admits(token) {
			return true
		}
	}
	if query == "" || !t.Admits(query) {
		writeError(w, r, http.StatusUnauthorized, api.CodeUnauthorized, "This preview asks for a token",
			"Open it with ?"+TokenParam+"=TOKEN once, or send the header "+TokenHeader+".")
		return false
	}
	if (r.Method != http.MethodGet && r.Method != http.MethodHead) || r.Header.Get("Upgrade") != "" {
		return true
	}
	http.SetCookie(w, &http.Cookie{
		Name: tokenCookie, Value: query, Path: "/", HttpOnly: true,
		Secure: r.TLS != nil || forwardedHTTPS(r), SameSite: http.SameSiteLaxMode,
	})
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	// A path, so that no header decides where this leads to; with one slash,
	// as two would make it a host.
	w.Header().Set("Location", "/"+strings.TrimLeft(r.RequestURI, "/\\"))
	w.WriteHeader(http.StatusSeeOther)
	return false
}

// takeToken takes the tokens out of the request: those of the header and of
// cookies, and that of the query.
func takeToken(r *http.Request) (given []string, query string) {
	given = r.Header.Values(TokenHeader)
	r.Header.Del(TokenHeader)
	var kept []string
	for _, line := range r.Header.Values("Cookie") {
		for part := range strings.SplitSeq(line, ";") {
			part = strings.TrimSpace(part)
			if value, ok := strings.CutPrefix(part, tokenCookie+"="); ok {
				given = append(given, value)
			} else if part != "" {
				kept = append(kept, part)
			}
		}
	}
	r.Header.Del("Cookie")
	if len(kept) > 0 {
		r.Header.Set("Cookie", strings.Join(kept, "; "))
	}
	return given, cutQuery(r)
}

// cutQuery takes the token out of the query and leaves the rest byte for byte.
func cutQuery(r *http.Request) (token string) {
	path, query, ok := strings.Cut(r.RequestURI, "?")
	if !ok || !strings.Contains(query, TokenParam+"=") {
		return ""
	}
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		value, ok := strings.CutPrefix(part, TokenParam+"=")
		if !ok {
			kept = append(kept, part)
			continue
		}
		if v, err := url.QueryUnescape(value); err == nil && token == "" {
			token = v
		}
	}
	r.RequestURI, r.URL.RawQuery = path, strings.Join(kept, "&")
	if len(kept) > 0 {
		r.RequestURI += "?" + r.URL.RawQuery
	}
	r.URL.ForceQuery = false
	return token
}
