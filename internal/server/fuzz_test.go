package server_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/server"
	"github.com/glovebox-dev/glovebox/internal/server/fakecontrol"
)

// Whatever the body, the answer is 2xx or an error of the API below 500.
func FuzzBodies(f *testing.F) {
	for _, body := range []string{
		"", "{}", "null", "[]", "{", `{"timeout":1e400}`, `{"name":"\ud800"}`, `{"ports":[1,"2",{}]}`,
		`{"networkPolicy":"deny-all"}`, `{"networkPolicy":{"allow":{"a":[{"response":{"statusCode":200}}]}}}`,
		`{"networkPolicy":""}`, `{"keepLastSnapshots":null,"mounts":{"/a":null}}`, `{"command":"true","args":[null],"env":{"A":null},"wait":true}`,
		`{"path":"\u0000"}`, `{"signal":-9223372036854775808}`, "\xff", strings.Repeat("[", 20000),
	} {
		f.Add(body)
	}
	paths := []string{
		"/v3/sandboxes", "/v2/sandboxes/sessions/se_1/cmd", "/v2/sandboxes/sessions/se_1/extend-timeout",
		"/v2/sandboxes/sessions/se_1/network-policy", "/v2/sandboxes/sessions/se_1/fs/read",
		"/v2/sandboxes/sessions/se_1/fs/mkdir", "/v2/sandboxes/sessions/se_1/fs/write", "/v11/projects",
	}
	f.Fuzz(func(t *testing.T, body string) {
		control := fakecontrol.New()
		defer control.Close()
		s, err := server.New(server.Config{Control: control, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range append(paths, "PATCH /v2/sandboxes/a") {
			method := "POST"
			if m, p, ok := strings.Cut(path, " "); ok {
				method, path = m, p
			}
			// What the fake refuses to do, or does for ever, is not the matter here.
			if strings.Contains(body, "broken") || strings.Contains(body, "panic") || strings.Contains(body, "sleep") {
				return
			}
			req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			req.Header.Set("Authorization", "Bearer "+fakecontrol.AlphaToken)
			rec := httptest.NewRecorder()
			s.ServeHTTP(rec, req)
			checkAnswer(t, path, rec)
		}
	})
}

func checkAnswer(t *testing.T, path string, rec *httptest.ResponseRecorder) {
	t.Helper()
	if rec.Code >= 500 {
		t.Errorf("%s: status %d: %s", path, rec.Code, rec.Body)
	}
	if rec.Code < 400 || (rec.Code == http.StatusNotFound && rec.Body.Len() == 0) {
		return
	}
	var e api.ErrorResponse
	if err := json.Unmarshal(rec.Body.Bytes(), &e); err != nil || e.Error.Code == "" || e.Error.Message == "" {
		t.Errorf("%s: status %d with %q (%v)", path, rec.Code, rec.Body, err)
	}
}

// Whatever path and query, there is an answer below 500.
func FuzzQueries(f *testing.F) {
	f.Add("sessions/se_1/cmd/cmd_1", "wait=true")
	f.Add("", "limit=-1&cursor=%00&tags=a:b&tags=:")
	f.Add("%2e%2e", "resume=true&resume=false")
	f.Fuzz(func(t *testing.T, path, query string) {
		u, err := url.Parse("/v2/sandboxes/" + path + "?" + query)
		if err != nil {
			return
		}
		control := fakecontrol.New()
		defer control.Close()
		s, err := server.New(server.Config{Control: control, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		s.ServeHTTP(rec, &http.Request{Method: "GET", URL: u, Host: "h", Header: http.Header{"Authorization": {"Bearer alpha-token"}}, Body: http.NoBody})
		checkAnswer(t, u.String(), rec)
	})
}
