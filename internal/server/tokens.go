package server

import (
	"net/http"

	"github.com/glovebox-dev/glovebox/api"
)

// jwks answers the keys that verify tokens. Whoever gets a forwarded request
// asks for them, without a token of ours.
func (c *call) jwks() error {
	if c.s.tokens == nil {
		return api.Errorf(api.CodeNotFound, "this server signs no tokens")
	}
	return c.document(c.s.tokens.JWKS())
}

// openIDConfiguration tells where the keys are.
func (c *call) openIDConfiguration() error {
	if c.s.tokens == nil {
		return api.Errorf(api.CodeNotFound, "this server signs no tokens")
	}
	return c.document(c.s.tokens.Configuration())
}

func (c *call) document(b []byte, err error) error {
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Header().Set("Cache-Control", "public, max-age=300")
	c.w.WriteHeader(http.StatusOK)
	_, err = c.w.Write(b)
	return err
}
