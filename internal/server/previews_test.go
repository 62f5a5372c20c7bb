package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestPreviewsAreBounded(t *testing.T) {
	s := &Server{
		isPreview: func(string) bool { return true },
		preview:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
	}
	ask := func(host string) int {
		r := httptest.NewRequest(http.MethodGet, "http://"+host+"/", nil)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code
	}
	var leaves []func()
	for range maxPreviewsHost {
		leave, ok := s.previews.enter("a.localhost")
		if !ok {
			t.Fatal("refused below the bound")
		}
		leaves = append(leaves, leave)
	}
	if got := ask("A.localhost"); got != http.StatusServiceUnavailable {
		t.Errorf("one too many: status %d", got)
	}
	if got := ask("b.localhost"); got != http.StatusNoContent {
		t.Errorf("another sandbox: status %d", got)
	}
	for _, leave := range leaves {
		leave()
	}
	if got := ask("a.localhost"); got != http.StatusNoContent || s.previews.total != 0 || len(s.previews.byHost) != 0 {
		t.Errorf("afterwards: status %d, %d in progress", got, s.previews.total)
	}
}
