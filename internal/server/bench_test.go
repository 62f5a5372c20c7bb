package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/server/fakecontrol"
)

func benchCall(b *testing.B, url, body string) int64 {
	req, err := http.NewRequestWithContext(b.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+fakecontrol.AlphaToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil || resp.StatusCode != 200 {
		b.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	return n
}

// What the server adds to a command, and how fast output and files pass.
func BenchmarkServer(b *testing.B) {
	ts, _ := newServer(b, nil)
	benchCall(b, ts.URL+"/v3/sandboxes", `{}`)
	session := ts.URL + "/v2/sandboxes/sessions/se_1"
	b.Run("true", func(b *testing.B) {
		for b.Loop() {
			benchCall(b, session+"/cmd", `{"command":"true","wait":true,"logs":true}`)
		}
	})
	b.Run("output", func(b *testing.B) {
		b.SetBytes(50_000_000)
		for b.Loop() {
			benchCall(b, session+"/cmd", `{"command":"flood","args":["50000000"],"wait":true,"logs":true}`)
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(200_000)
		for b.Loop() {
			benchCall(b, session+"/fs/read", `{"path":"/grows"}`)
		}
	})
}
