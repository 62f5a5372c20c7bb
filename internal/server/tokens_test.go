package server_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/oidc"
	"github.com/glovebox-dev/glovebox/internal/server"
	"github.com/glovebox-dev/glovebox/internal/server/fakecontrol"
)

func TestTokenDocuments(t *testing.T) {
	s, err := server.New(server.Config{Control: fakecontrol.New(), Tokens: oidc.New(t.TempDir(), func() string { return "https://x.test" })})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/.well-known/jwks", "/.well-known/openid-configuration"} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, p, nil))
		if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || w.Body.Len() < 100 {
			t.Errorf("%s: %d %v %s", p, w.Code, w.Header(), w.Body)
		}
	}
}
