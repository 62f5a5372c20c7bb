package node

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/intercept"
)

// anchors are where systems look for further authorities when they make
// their bundle anew.
var anchors = []string{"/usr/local/share/ca-certificates/glovebox.crt", "/etc/pki/ca-trust/source/anchors/glovebox.crt"}

// bundles are the files of all authorities, as distributions name them. A
// name that is a link to another stands after it: once that one is written,
// it has what it needs.
var bundles = []string{
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/var/lib/ca-certificates/ca-bundle.pem",
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// defaultBundle is made where an image has none, of this host's authorities.
const defaultBundle = "/etc/ssl/certs/ca-certificates.crt"

// maxBundle bounds what is read of a guest's file; real ones have 250 KB.
const maxBundle = 8 << 20

// installCA has the guest trust this machine's CA in place of that of any
// session before. It may be called again.
func (m *machine) installCA(ctx context.Context) error {
	m.trusting.Lock()
	defer m.trusting.Unlock()
	cert := m.ca.PEM()
	files, bundle := map[string][]byte{}, ""
	for _, p := range bundles {
		old, err := m.readBundle(ctx, p)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, guest.ErrNotRegular) {
				continue
			}
			return err
		}
		if bundle == "" {
			bundle = p
		}
		with := withCA(old, cert)
		if bytes.Equal(old, with) {
			continue
		}
		files[p] = with
		if err := m.writeFile(ctx, p, with); err != nil {
			return err
		}
	}
	rest := map[string][]byte{}
	if bundle == "" {
		bundle = defaultBundle
		rest[bundle] = withCA(hostBundle(), cert)
	}
	for _, p := range anchors {
		rest[p] = cert
	}
	for p, content := range rest {
		if err := m.writeFile(ctx, p, content); err != nil {
			return err
		}
		files[p] = content
	}
	for _, p := range slices.Collect(maps.Keys(files)) {
		for d := path.Dir(p); d != "/"; d = path.Dir(d) {
			files[d] = nil
		}
	}
	files["/"] = nil // the kernel sets its time when it copies /usr up
	m.alsoMade(files)
	m.mu.Lock()
	m.env = trustEnv(bundle)
	m.mu.Unlock()
	return nil
}

// trustEnv has programs that bring their own authorities use the system's.
func trustEnv(bundle string) map[string]string {
	env := map[string]string{
		// These name an authority besides the built-in ones.
		"NODE_EXTRA_CA_CERTS": anchors[0], "DENO_CERT": anchors[0],
		"NODE_USE_SYSTEM_CA": "1",
	}
	for _, k := range []string{
		"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO",
		"AWS_CA_BUNDLE", "NPM_CONFIG_CAFILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
	} {
		env[k] = bundle
	}
	return env
}

// Env implements Machine.
func (m *machine) Env() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.env
}

// madeByUs is what is no reason to save the disk.
func (m *machine) madeByUs() map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.made
}

func (m *machine) alsoMade(files map[string][]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(m.made)
	if all == nil {
		all = map[string][]byte{}
	}
	maps.Copy(all, files)
	m.made = all
}

func (m *machine) readBundle(ctx context.Context, p string) ([]byte, error) {
	r, _, err := m.ReadFile(ctx, p)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxBundle+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxBundle {
		return nil, fmt.Errorf("read %s: it has more than %d bytes, which no bundle of authorities has", p, maxBundle)
	}
	return b, nil
}

// writeFile writes a file of root's, atomically.
func (m *machine) writeFile(ctx context.Context, p string, content []byte) error {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err := w.WriteHeader(&tar.Header{Name: path.Base(p), Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))})
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return fmt.Errorf("pack %s: %w", p, err)
	}
	return m.WriteTar(ctx, path.Dir(p), guest.User{}, &buf, nil)
}

// hostBundle is what this host trusts; nil where it has no bundle.
func hostBundle() []byte {
	for _, p := range append([]string{os.Getenv("SSL_CERT_FILE")}, bundles...) {
		if b, err := os.ReadFile(p); err == nil && len(b) <= maxBundle {
			return b
		}
	}
	return nil
}

const (
	certBegin = "-----BEGIN CERTIFICATE-----"
	certEnd   = "-----END CERTIFICATE-----"
)

// withCA returns bundle with cert as its last, and without those of earlier
// machines.
func withCA(bundle, cert []byte) []byte {
	var out []byte
	rest := bundle
	for {
		n := bytes.Index(rest, []byte(certEnd))
		if n < 0 {
			break
		}
		end := n + len(certEnd)
		if end < len(rest) && rest[end] == '\n' {
			end++
		}
		i := max(bytes.LastIndex(rest[:n], []byte(certBegin)), 0)
		out = append(out, rest[:i]...)
		if block := rest[i:end]; !isOurs(block) {
			out = append(out, block...)
		}
		rest = rest[end:]
	}
	out = append(out, rest...)
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	return append(out, cert...)
}

// isOurs recognises a certificate by the subject in it.
func isOurs(block []byte) bool {
	body := bytes.TrimSpace(block)
	body = bytes.TrimSuffix(bytes.TrimPrefix(body, []byte(certBegin)), []byte(certEnd))
	der := make([]byte, base64.StdEncoding.DecodedLen(len(body)))
	n, err := base64.StdEncoding.Decode(der, bytes.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == ' ' {
			return -1
		}
		return r
	}, body))
	return err == nil && bytes.Contains(der[:n], []byte(intercept.Subject))
}
