package control

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// interactiveLife is how long a token for a terminal waits for its use.
const interactiveLife = time.Minute

// interactiveToken is what a token stands for, once.
type interactiveToken struct {
	project, session string
	timer            Timer
}

// NewInteractive makes a token with which a terminal can be opened once, in
// this session and within a minute.
func (p *Project) NewInteractive(ctx context.Context, sessionID string) (string, error) {
	if _, err := p.running(ctx, sessionID); err != nil {
		return "", err
	}
	token := rand.Text()
	hash := store.HashToken(token)
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens[hash] = interactiveToken{project: p.name, session: sessionID, timer: c.clock.AfterFunc(interactiveLife, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.tokens, hash)
	})}
	return token, nil
}

// RedeemInteractive trades a token for what it stands for.
func (c *Control) RedeemInteractive(_ context.Context, token string) (project, sessionID string, err error) {
	hash := store.HashToken(token)
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.tokens[hash]
	if !ok {
		return "", "", api.Errorf(api.CodeUnauthorized, "the token of this terminal is unknown, was used, or is older than %v; ask for a new one", interactiveLife)
	}
	delete(c.tokens, hash)
	t.timer.Stop()
	return t.project, t.session, nil
}
