package preview

import (
	"encoding/json"
	"html/template"
	"net/http"
	"strings"

	"github.com/glovebox-dev/glovebox/api"
)

var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<style>
 body { font: 16px/1.5 system-ui, sans-serif; max-width: 36em; margin: 15vh auto; padding: 0 1em; color: #222; background: #fff }
 h1 { font-size: 1.4em } code { color: #666 }
 @media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } code { color: #999 } }
</style>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
<p><code>{{.Status}} {{.Code}}</code></p>
</html>
`))

// writeError answers with a page for browsers and with JSON for programs.
// It is never cached: the next request may well succeed.
func writeError(w http.ResponseWriter, r *http.Request, status int, code api.Code, title, text string) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept")
	h.Set("X-Content-Type-Options", "nosniff")
	if wantsHTML(r) {
		h.Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		_ = page.Execute(w, map[string]any{"Title": title, "Text": text, "Status": status, "Code": code}) // the client has gone
		return
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.ErrorResponse{Error: api.Error{Code: code, Message: text}})
}

// wantsHTML: browsers name text/html in their Accept; other clients send
// */* or nothing.
func wantsHTML(r *http.Request) bool {
	return strings.Contains(strings.ToLower(strings.Join(r.Header.Values("Accept"), ",")), "text/html")
}
