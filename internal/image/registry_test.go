package image

import (
	"errors"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sys/unix"
)

func TestPull(t *testing.T) {
	host := serveRegistry(t, nil)
	want := sample(t)
	push(t, host+"/team/app:v1", want)
	s := openStore(t, Options{})
	var stages []string
	img, err := s.Pull(ctx, host+"/team/app:v1", PullOptions{Progress: func(p Progress) {
		if !slices.Contains(stages, p.Stage) {
			stages = append(stages, p.Stage)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sampleFiles, files(t, img)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(Config{
		Env:        []string{"PATH=/opt/tools/bin:/usr/bin", "EMPTY=", "EQ=a=b"},
		WorkingDir: "/work",
		User:       User{Name: "node", UID: 1000, GID: 1001, Groups: []uint32{77, 29}, Home: "/home/node"},
	}, img.Config); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]map[string][]byte{"/bin/su": {"user.origin": []byte("bottom")}}, img.Layers[0].Xattrs); d != "" {
		t.Error(d)
	}
	digest, err := want.Digest()
	if err != nil || img.Digest != digest.String() || img.Reference != host+"/team/app:v1" {
		t.Errorf("%s %s, %v", img.Reference, img.Digest, err)
	}
	if !slices.Contains(stages, StageResolve) || !slices.Contains(stages, StageDownload) || stages[len(stages)-1] != StageWrite {
		t.Errorf("stages %v", stages)
	}
	for _, ref := range []string{img.Reference, img.Digest} {
		if got, err := s.Get(ref); err != nil || got.Digest != img.Digest || got.Layers[0].Path != img.Layers[0].Path {
			t.Errorf("get %s: %v", ref, err)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(img.Layers[0].Path, &st); err != nil || st.Mode&0o222 != 0 {
		t.Errorf("layer has mode %#o, %v", st.Mode, err)
	}
	if err := s.Verify(ctx, img.Digest); err != nil {
		t.Error(err)
	}
	assertNothingLeft(t, s)
}

func TestPullByDigestAndPlatform(t *testing.T) {
	host := serveRegistry(t, nil)
	mine := small(t, "mine")
	other := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: small(t, "other"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: mine, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})
	tag, err := name.NewTag(host + "/multi")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(tag, other); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, Options{})
	img, err := s.Pull(ctx, host+"/multi", PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := files(t, img); !slices.Equal(got, []string{"/f=mine"}) {
		t.Error(got)
	}
	if img.Config.User.Name != "root" || img.Config.User.Home != "/root" || img.Config.WorkingDir != "/vercel/sandbox" || img.Config.Env[0] != "PATH="+defaultPath {
		t.Errorf("defaults: %+v", img.Config)
	}
	index, err := other.Digest()
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := s.Pull(ctx, host+"/multi@"+index.String(), PullOptions{})
	if err != nil || pinned.Digest != img.Digest {
		t.Errorf("by the digest of the index: %s, %v", pinned.Digest, err)
	}
}

func TestPullErrors(t *testing.T) {
	deny := func(status int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			w.WriteHeader(status)
			return true
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody listens there now
	tests := []struct {
		ref  string
		want error
		text string
	}{
		{serveRegistry(t, deny(http.StatusUnauthorized)) + "/a", ErrUnauthorized, "docker login"},
		{serveRegistry(t, deny(http.StatusForbidden)) + "/a", ErrUnauthorized, "docker login"},
		{serveRegistry(t, deny(http.StatusTooManyRequests)) + "/a", ErrUnavailable, "limits"},
		{serveRegistry(t, nil) + "/a:v1", ErrNotFound, "check name and tag"},
		{l.Addr().String() + "/a", ErrUnavailable, l.Addr().String()},
		{"Not A Name", ErrInvalidReference, "Not A Name"},
		{"a:b:c", ErrInvalidReference, "a:b:c"},
		{"glovebox/other", ErrInvalidReference, DefaultReference},
		{DefaultReference, ErrInvalidReference, "glovebox image build"},
		{"sha256:" + strings.Repeat("0", 64), ErrInvalidReference, "without a repository"},
		{strings.Repeat("x", maxReference+1), ErrInvalidReference, "256 characters"},
	}
	s := openStore(t, Options{})
	for _, tt := range tests {
		_, err := s.Pull(ctx, tt.ref, PullOptions{})
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: error %v, want %v with %q", tt.ref, err, tt.want, tt.text)
		}
	}
	assertNothingLeft(t, s)
}

func TestPullRefusesBrokenImages(t *testing.T) {
	var corrupt atomic.Bool
	host := serveRegistry(t, func(w http.ResponseWriter, r *http.Request) bool {
		if corrupt.Load() && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			w.Write(gzipped([]byte("something else")))
			return true
		}
		return false
	})
	tests := map[string]v1.Image{
		"up":   makeImage(t, v1.Config{}, gzipLayer(tarOf(t, "../up=x"))),
		"user": makeImage(t, v1.Config{User: "nobody"}, gzipLayer(tarOf(t, "f=x"))),
		"env":  makeImage(t, v1.Config{Env: []string{"NOVALUE"}}, gzipLayer(tarOf(t, "f=x"))),
		"gzip": makeImage(t, v1.Config{}, layerOf{gzipLayer(nil), nil}, gzipLayer([]byte("no archive, but long enough to be taken for a header"+strings.Repeat(".", 600)))),
	}
	s := openStore(t, Options{})
	for n, img := range tests {
		push(t, host+"/"+n, img)
		if _, err := s.Pull(ctx, host+"/"+n, PullOptions{}); !errors.Is(err, ErrArchive) {
			t.Errorf("%s: error %v", n, err)
		}
	}
	push(t, host+"/corrupt", small(t, "x"))
	corrupt.Store(true)
	if _, err := s.Pull(ctx, host+"/corrupt", PullOptions{}); err == nil {
		t.Error("a corrupt layer was taken")
	}
	assertNothingLeft(t, s)
}

func TestPullRetriesCutConnections(t *testing.T) {
	var cuts atomic.Int32
	host := serveRegistry(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") || cuts.Add(1) != 2 {
			return false // the first is the config, the second the layer
		}
		w.Header().Set("Content-Length", "1000000")
		w.Write([]byte("cut"))
		panic(http.ErrAbortHandler)
	})
	push(t, host+"/a", small(t, "x"))
	cuts.Store(0)
	s := openStore(t, Options{})
	if _, err := s.Pull(ctx, host+"/a", PullOptions{}); err != nil {
		t.Fatal(err)
	}
	if cuts.Load() != 3 {
		t.Errorf("%d requests for blobs, want 3", cuts.Load())
	}
}

func TestStalledPullEnds(t *testing.T) {
	old := stallTimeout
	stallTimeout = 100 * time.Millisecond
	defer func() { stallTimeout = old }()
	release := make(chan struct{})
	var stall atomic.Bool
	host := serveRegistry(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !stall.Load() || r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		w.Header().Set("Content-Length", "1000000")
		w.Write([]byte("x"))
		w.(http.Flusher).Flush()
		<-release
		return true
	})
	defer close(release)
	push(t, host+"/a", small(t, "x"))
	stall.Store(true)
	s := openStore(t, Options{})
	done := make(chan error, 1)
	go func() { _, err := s.Pull(ctx, host+"/a", PullOptions{}); done <- err }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a stalled pull succeeded")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("a stalled pull goes on")
	}
}

func TestResolvePullsOnceForAll(t *testing.T) {
	var manifests atomic.Int32
	gate := make(chan struct{})
	var gated atomic.Bool
	host := serveRegistry(t, func(w http.ResponseWriter, r *http.Request) bool {
		if gated.Load() && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/") {
			manifests.Add(1)
			<-gate
		}
		return false
	})
	push(t, host+"/a:v1", small(t, "x"))
	gated.Store(true)
	local := openStore(t, Options{})
	if _, err := local.Resolve(ctx, host+"/a:v1", nil); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "glovebox image pull "+host+"/a:v1") {
		t.Errorf("without pulling: %v", err)
	}
	s := openStore(t, Options{PullMissing: true})
	var wg sync.WaitGroup
	var started sync.WaitGroup
	for range 8 {
		started.Add(1)
		wg.Go(func() {
			started.Done()
			if img, err := s.Resolve(ctx, host+"/a:v1", nil); err != nil || len(img.Layers) != 1 {
				t.Errorf("%v", err)
			}
		})
	}
	started.Wait()
	close(gate)
	wg.Wait()
	first := manifests.Load()
	if _, err := s.Resolve(ctx, host+"/a:v1", nil); err != nil || manifests.Load() != first {
		t.Errorf("asked the registry again for what is here: %v", err)
	}
}

func TestCloseEndsAPull(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	host := serveRegistry(t, func(w http.ResponseWriter, r *http.Request) bool {
		close(arrived)
		<-release
		return true
	})
	defer close(release)
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := s.Pull(ctx, host+"/a", PullOptions{}); done <- err }()
	<-arrived
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("the pull succeeded")
	}
	if _, err := s.Pull(ctx, host+"/a", PullOptions{}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a pull on a closed store: %v", err)
	}
}
