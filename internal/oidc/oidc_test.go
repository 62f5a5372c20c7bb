package oidc

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func decode(t *testing.T, s string, v any) {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestToken(t *testing.T) {
	dir := t.TempDir()
	i := New(dir, func() string { return "https://box.example.com/" })
	text, err := i.Token(Identity{Project: "p", SandboxID: "sbx_1", SandboxName: "n", SessionID: "se_1"}, "https://proxy.test/a")
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(filepath.Join(dir, KeyFile))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", st, err)
	}
	parts := strings.Split(text, ".")
	var head struct{ Alg, Kid string }
	var claims struct {
		Iss, Aud, Team_id, Project_id, Sandbox_id, Sandbox_name string
		Iat, Exp, Nbf                                           int64
	}
	decode(t, parts[0], &head)
	decode(t, parts[1], &claims)
	now := time.Now().Unix()
	if claims.Iss != "https://box.example.com" || claims.Aud != "https://proxy.test/a" || claims.Team_id != "p" || claims.Project_id != "p" ||
		claims.Sandbox_id != "sbx_1" || claims.Sandbox_name != "n" || claims.Nbf > now || claims.Exp < now+60 || claims.Exp > now+600 {
		t.Errorf("claims %+v", claims)
	}
	// A later server has the same key, and publishes it.
	b, err := New(dir, i.url).JWKS()
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Keys []struct{ Kid, N, E, Alg string }
	}
	if err := json.Unmarshal(b, &set); err != nil || len(set.Keys) != 1 || set.Keys[0].Kid != head.Kid || head.Alg != "RS256" {
		t.Fatalf("%s, %v; the token has %+v", b, err, head)
	}
	n, _ := base64.RawURLEncoding.DecodeString(set.Keys[0].N)
	e, _ := base64.RawURLEncoding.DecodeString(set.Keys[0].E)
	sig, _ := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	pub := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
	if err := rsa.VerifyPKCS1v15(pub, crypto.SHA256, sum[:], sig); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("files in the directory: %v", entries)
	}
}

func TestBrokenKey(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, KeyFile), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(dir, func() string { return "" }).Token(Identity{}, "x"); err == nil || !strings.Contains(err.Error(), KeyFile) {
		t.Errorf("%v", err)
	}
	if _, err := New(filepath.Join(dir, "none"), func() string { return "" }).JWKS(); err == nil {
		t.Error("a key without a place")
	}
}
