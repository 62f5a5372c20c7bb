package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"
)

// PullOptions of Pull.
type PullOptions struct {
	Progress ProgressFunc
}

// Pull fetches an image from its registry, with the user's docker
// credentials, for Linux on this machine's architecture. What ref names here
// is replaced if the registry has something else by now. The error wraps
// ErrNotFound, ErrUnauthorized, ErrUnavailable, ErrArchive or ErrNoSpace.
func (s *Store) Pull(ctx context.Context, ref string, o PullOptions) (Image, error) {
	full, err := Canonical(ref)
	if err != nil {
		return Image{}, err
	}
	if full == DefaultReference {
		return Image{}, fmt.Errorf("%w: %s comes from no registry: run \"glovebox image build\"", ErrInvalidReference, full)
	}
	if isDigest(full) {
		return Image{}, fmt.Errorf("%w: %s is a digest without a repository: use NAME@%s", ErrInvalidReference, full, full)
	}
	o.Progress = o.Progress.serial()
	return s.single(ctx, "pull "+full, func(ctx context.Context) (Image, error) {
		img, err := s.pull(ctx, full, o.Progress)
		return img, s.explain("pull", full, err)
	})
}

func (s *Store) pull(ctx context.Context, full string, progress ProgressFunc) (Image, error) {
	progress.report(Progress{Stage: StageResolve, Detail: full})
	ref, err := name.ParseReference(full)
	if err != nil {
		return Image{}, fmt.Errorf("%w: %w", ErrInvalidReference, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx) // bounds the requests of img as well
	img, err := remote.Image(ref,
		remote.WithContext(ctx),
		remote.WithTransport(registryTransport()),
		remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}),
		remote.WithUserAgent("glovebox"))
	if err != nil {
		return Image{}, classify(err)
	}
	digest, err := img.Digest()
	if err != nil {
		return Image{}, classify(err)
	}
	if _, err := s.Get(digest.String()); err == nil {
		return s.tag(digest.String(), full)
	}
	src, layers, err := describe(img, digest.String())
	if err != nil {
		return Image{}, classify(err)
	}
	dir, err := s.scratch.TempDir()
	if err != nil {
		return Image{}, err
	}
	defer os.RemoveAll(dir)
	d := newDownloads(dir, layers, progress)
	for i := range src.layers {
		src.layers[i].open = func(ctx context.Context) (io.ReadCloser, error) { return d.open(ctx, i) }
	}
	for range parallelDownloads {
		group.Go(func() error { return d.work(ctx) })
	}
	group.Go(func() error { return d.watch(ctx) })
	var out Image
	group.Go(func() (err error) {
		out, err = s.squash(ctx, full, src, progress)
		return err
	})
	if err := group.Wait(); err != nil {
		return Image{}, classify(err)
	}
	return out, nil
}

// registryTransport is the library's, which honours proxies, with an end to
// waiting for a registry that accepts a request and never answers.
func registryTransport() http.RoundTripper {
	t, ok := remote.DefaultTransport.(*http.Transport)
	if !ok {
		return remote.DefaultTransport
	}
	t = t.Clone()
	t.ResponseHeaderTimeout = stallTimeout
	return t
}

// describe reads config and layer list; the digests of the layers are checked
// as they are downloaded.
func describe(img v1.Image, digest string) (source, []v1.Layer, error) {
	if err := checkManifest(img); err != nil {
		return source{}, nil, err
	}
	c, err := img.ConfigFile()
	if err != nil {
		return source{}, nil, err
	}
	if err := checkPlatform(c); err != nil {
		return source{}, nil, err
	}
	layers, err := img.Layers()
	if err != nil {
		return source{}, nil, err
	}
	src := source{digest: digest, config: c.Config, layers: make([]blob, len(layers))}
	for i, l := range layers {
		if src.layers[i].size, err = l.Size(); err != nil {
			return source{}, nil, err
		}
	}
	return src, layers, nil
}

// checkManifest refuses artifacts that are no container images.
func checkManifest(img v1.Image) error {
	m, err := img.Manifest()
	if err != nil {
		return err
	}
	if !m.Config.MediaType.IsConfig() {
		return fmt.Errorf("%w: it is not a container image: its config has the type %q", ErrArchive, m.Config.MediaType)
	}
	return nil
}

// checkPlatform refuses images that cannot run here.
func checkPlatform(c *v1.ConfigFile) error {
	if c.OS != "" && c.OS != "linux" || c.Architecture != "" && c.Architecture != runtime.GOARCH {
		return fmt.Errorf("%w: it is for %s/%s, this machine runs linux/%s", ErrArchive, c.OS, c.Architecture, runtime.GOARCH)
	}
	return nil
}

// classify tells the registry's refusals from an unreachable registry.
func classify(err error) error {
	var te *transport.Error
	if errors.As(err, &te) {
		switch te.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			return fmt.Errorf("%w: log in with \"docker login\", or check the name, for registries refuse what does not exist too: %w", ErrUnauthorized, err)
		case http.StatusNotFound:
			return fmt.Errorf("%w: the registry does not have it: check name and tag: %w", ErrNotFound, err)
		case http.StatusTooManyRequests:
			return fmt.Errorf("%w: it limits anonymous pulls: wait, or log in with \"docker login\": %w", ErrUnavailable, err)
		}
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	var ue *url.Error
	var oe *net.OpError
	network := errors.As(err, &ue) || errors.As(err, &oe) || errors.Is(err, io.ErrUnexpectedEOF)
	if network && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrArchive) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
