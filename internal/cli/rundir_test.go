package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestRunDirsAreLocked(t *testing.T) {
	a, _, _ := testApp()
	a.dataDir = t.TempDir()
	first, err := a.newRunDir(context.Background())
	must(t, err)
	second, err := a.newRunDir(context.Background())
	must(t, err)
	if first.path == second.path {
		t.Fatal("two runs share a directory")
	}
	if _, err := os.Stat(first.path); err != nil {
		t.Errorf("the second run removed the first one's directory: %v", err)
	}
	if _, err := lockDir(first.path, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("the lock of a live run: %v", err)
	}
	must(t, first.remove())
	must(t, second.remove())
	if _, err := os.Stat(second.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s stays: %v", second.path, err)
	}
}

func TestPipeListenerServesHTTP(t *testing.T) {
	defer goleak.VerifyNone(t)
	l := newPipeListener()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(body)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx) }}
	resp, err := (&http.Client{Transport: transport}).Post("http://localhost/", "text/plain", io.LimitReader(zeros{}, 1<<20))
	must(t, err)
	n, err := io.Copy(io.Discard, resp.Body)
	must(t, err)
	resp.Body.Close()
	if n != 1<<20 {
		t.Errorf("%d bytes came back", n)
	}
	transport.CloseIdleConnections()
	must(t, server.Close())
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if _, err := l.dial(context.Background()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dial after the end: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
