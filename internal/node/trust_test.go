package node_test

import (
	"encoding/json"
	"path"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/egress"
)

func rulesPolicy(t *testing.T) egress.Policy {
	t.Helper()
	var in api.NetworkPolicy
	if err := json.Unmarshal([]byte(`{"allow":{"a.test":[{"transform":[{"headers":{"x":"s3cret"}}]}]}}`), &in); err != nil {
		t.Fatal(err)
	}
	p, err := egress.Parse(in)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// countCAs prints the subject of each certificate of ours in a bundle.
const countCAs = `
import re, ssl, sys
pem = open(sys.argv[1]).read()
ours = [b for b in re.findall('-----BEGIN.*?END CERTIFICATE-----', pem, re.S) if b'Glovebox sandbox CA' in ssl.PEM_cert_to_DER_cert(b)]
print(len(ours), pem.count('BEGIN'), ours[-1].strip() == open('/usr/local/share/ca-certificates/glovebox.crt').read().strip() if ours else None)
`

// The CA is in the guest only once a policy has rules, replaces that of the
// session before, and is no reason to save a disk.
func TestCAInGuest(t *testing.T) {
	s := newSaved(t, 0)
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	s.sh("test ! -e /usr/local/share/ca-certificates/glovebox.crt")
	if len(s.m.Env()) != 0 {
		t.Errorf("variables without rules: %v", s.m.Env())
	}
	if err := s.m.SetPolicy(t.Context(), rulesPolicy(t)); err != nil {
		t.Fatal(err)
	}
	if s.sh("true"); s.stop() {
		t.Error("the CA alone has made a layer")
	}
	s.start()
	for range 2 {
		if err := s.m.SetPolicy(t.Context(), rulesPolicy(t)); err != nil {
			t.Fatal(err)
		}
		if got := s.python(countCAs, bundle); !strings.HasPrefix(got, "1 ") || !strings.HasSuffix(got, " True\n") {
			t.Errorf("the bundle: %s", got)
		}
	}
	env := s.m.Env()
	for _, k := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
		"CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "NPM_CONFIG_CAFILE", "DENO_CERT", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"} {
		if !path.IsAbs(env[k]) {
			t.Errorf("%s=%q", k, env[k])
			continue
		}
		s.sh("test -r " + env[k])
	}
	if env["NODE_USE_SYSTEM_CA"] != "1" {
		t.Errorf("NODE_USE_SYSTEM_CA=%q", env["NODE_USE_SYSTEM_CA"])
	}
	s.sh("cmp /usr/local/share/ca-certificates/glovebox.crt /etc/pki/ca-trust/source/anchors/glovebox.crt; stat -c '%U %a' " + bundle + " | grep -x 'root 644'")
	first := s.sh("cat /usr/local/share/ca-certificates/glovebox.crt")
	s.sh("echo 1 >/root/f; cp " + bundle + " /root/was")
	if !s.stop() {
		t.Fatal("nothing was saved")
	}
	s.start()
	if err := s.m.SetPolicy(t.Context(), rulesPolicy(t)); err != nil {
		t.Fatal(err)
	}
	if got := s.python(countCAs, bundle); !strings.HasPrefix(got, "1 ") || !strings.HasSuffix(got, " True\n") {
		t.Errorf("the bundle after a resume: %s", got)
	}
	if second := s.sh("cat /usr/local/share/ca-certificates/glovebox.crt"); second == first {
		t.Error("the CA is that of the session before")
	}
	s.sh("test $(stat -c %s " + bundle + ") -lt $(($(stat -c %s /root/was) + 20))") // certificates differ by some bytes
}

// A guest without a bundle gets one, whatever is in its place.
func TestCAInOddGuest(t *testing.T) {
	s := newSaved(t, 0)
	s.sh("rm -r /etc/ssl/certs /usr/local/share/ca-certificates; mkdir -p /etc/ssl/certs; mkfifo /etc/ssl/certs/ca-certificates.crt")
	if err := s.m.SetPolicy(t.Context(), rulesPolicy(t)); err != nil {
		t.Fatal(err)
	}
	if got := s.python(countCAs, s.m.Env()["SSL_CERT_FILE"]); !strings.HasPrefix(got, "1 ") || !strings.HasSuffix(got, " True\n") {
		t.Errorf("the bundle: %s", got)
	}
	s.sh("rm -rf /etc/ssl; : >/etc/ssl")
	if err := s.m.SetPolicy(t.Context(), rulesPolicy(t)); err == nil {
		t.Error("a policy with rules is in force where nothing can trust the CA")
	}
}
