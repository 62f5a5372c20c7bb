package node

import (
	"bytes"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/intercept"
)

func newCert(t *testing.T) []byte {
	t.Helper()
	ca, err := intercept.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	return ca.PEM()
}

func TestWithCA(t *testing.T) {
	one, two := newCert(t), newCert(t)
	foreign := "# some authority\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	for _, bundle := range []string{"", "\n", foreign, foreign + "no newline", foreign + foreign, "-----BEGIN CERTIFICATE-----\ncut", "\xff\x00\n"} {
		a := withCA([]byte(bundle), one)
		b := withCA(a, two)
		if !bytes.HasSuffix(b, two) || bytes.Contains(b, one) || !strings.HasPrefix(string(b), bundle) {
			t.Errorf("%q became %q, then %q", bundle, a, b)
		}
		if again := withCA(b, two); !bytes.Equal(again, b) {
			t.Errorf("%q grows to %q", b, again)
		}
	}
	// update-ca-certificates copies certificates as they are.
	if got := withCA([]byte(foreign+string(one)+foreign), two); string(got) != foreign+foreign+string(two) {
		t.Errorf("%q", got)
	}
}

func FuzzWithCA(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"))
	cert := []byte("-----BEGIN CERTIFICATE-----\nR2xvdmVib3ggc2FuZGJveCBDQQ==\n-----END CERTIFICATE-----\n")
	f.Fuzz(func(t *testing.T, b []byte) {
		once := withCA(b, cert)
		if twice := withCA(once, cert); len(twice) > len(once) || !bytes.HasSuffix(twice, cert) {
			t.Errorf("%q grows to %q", once, twice)
		}
	})
}
