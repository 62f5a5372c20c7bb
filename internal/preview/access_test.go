package preview

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

const goodToken = "tok-1234567890abcdef"

// protected is a rig whose app tells what reaches it.
func protected(t *testing.T) *rig {
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s cookie=%q header=%q", r.RequestURI, r.Header.Get("Cookie"), r.Header.Get(TokenHeader))
	}))
	r.admits = func(token string) bool { return token == goodToken }
	return r
}

func TestPreviewTokenRefuses(t *testing.T) {
	r := protected(t)
	for name, change := range map[string]func(*http.Request){
		"nothing":       func(*http.Request) {},
		"wrong header":  func(q *http.Request) { q.Header.Set(TokenHeader, "wrong") },
		"wrong cookie":  func(q *http.Request) { q.Header.Set("Cookie", tokenCookie+"=wrong") },
		"wrong query":   func(q *http.Request) { q.URL.RawQuery = TokenParam + "=wrong" },
		"authorization": func(q *http.Request) { q.Header.Set("Authorization", "Bearer "+goodToken) },
		"other cookie":  func(q *http.Request) { q.Header.Set("Cookie", "x"+tokenCookie+"="+goodToken) },
		"other param":   func(q *http.Request) { q.URL.RawQuery = "x" + TokenParam + "=" + goodToken },
	} {
		q := r.request(http.MethodGet, "/secret", nil)
		change(q)
		res := r.do(q)
		if body := text(t, res); res.StatusCode != http.StatusUnauthorized || strings.Contains(body, "cookie=") || res.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
	}
	if n := r.dials.Load(); n != 0 {
		t.Errorf("the app was dialled %d times", n)
	}
}

func TestPreviewTokenAdmits(t *testing.T) {
	r := protected(t)
	for name, c := range map[string]struct {
		method string
		change func(*http.Request)
		want   string
	}{
		"header": {http.MethodGet, func(q *http.Request) { q.Header.Set(TokenHeader, goodToken) }, `/a?b=%41 cookie="" header=""`},
		"cookie": {http.MethodGet, func(q *http.Request) { q.Header.Set("Cookie", "a=1; "+tokenCookie+"="+goodToken+"; b=2") }, `/a?b=%41 cookie="a=1; b=2" header=""`},
		"two cookies": {http.MethodGet, func(q *http.Request) {
			q.Header.Set("Cookie", tokenCookie+"=tossed; "+tokenCookie+"="+goodToken)
		}, `/a?b=%41 cookie="" header=""`},
		"query of a POST": {http.MethodPost, func(q *http.Request) { q.URL.RawQuery = TokenParam + "=" + goodToken + "&b=%41" }, `/a?b=%41 cookie="" header=""`},
	} {
		q := r.request(c.method, "/a?b=%41", nil)
		c.change(q)
		if res := r.do(q); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", name, res.StatusCode)
		} else if got := text(t, res); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestPreviewTokenLink: a link with the token becomes a cookie, and leads to
// the same address without it, on this host whatever the path says.
func TestPreviewTokenLink(t *testing.T) {
	r := protected(t)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for uri, want := range map[string]string{
		"/x?a=1&" + TokenParam + "=" + goodToken + "&c=%20": "/x?a=1&c=%20",
		"/?" + TokenParam + "=" + goodToken:                 "/",
		"//evil.example/x?" + TokenParam + "=" + goodToken:  "/evil.example/x",
	} {
		q := r.request(http.MethodGet, "/", nil)
		path, query, _ := strings.Cut(uri, "?")
		q.URL.Path, q.URL.RawQuery = path, query
		res, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		cookies := res.Cookies()
		if res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != want || len(cookies) != 1 {
			t.Errorf("%s: %d to %q with %v, want %q", uri, res.StatusCode, res.Header.Get("Location"), cookies, want)
			continue
		}
		if c := cookies[0]; !c.HttpOnly || c.Domain != "" || c.Value != goodToken || res.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("cookie %+v", c)
		}
	}
	client.CloseIdleConnections()
}
