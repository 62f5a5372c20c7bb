package control

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// keyLife in milliseconds is how long an idempotency key is recognised.
const keyLife = 24 * 60 * 60 * 1000

// inflightKey names a request that is being carried out.
type inflightKey struct{ project, scope, key string }

// once carries out a request that brings an idempotency key, once: a repeated
// one waits for the first and gets what find says of its result. do must
// store the key with what it makes, and is called with nil where the request
// brings none. A request that failed may be repeated.
func once[T any](ctx context.Context, p *Project, scope, key string, request any, find func(id string) (T, error), do func(*store.Key) (T, error)) (T, error) {
	var zero T
	if key == "" {
		return do(nil)
	}
	if len(key) > api.MaxIdempotencyKey {
		return zero, api.BadRequest("header Idempotency-Key: is longer than %d bytes", api.MaxIdempotencyKey)
	}
	text, err := json.Marshal(request)
	if err != nil {
		return zero, internal("encode request", err)
	}
	k := store.Key{Project: p.name, Scope: scope, Key: key, RequestHash: store.HashToken(string(text)), CreatedAt: p.c.now()}
	done, err := p.c.enter(ctx, inflightKey{p.name, scope, key})
	if err != nil {
		return zero, err
	}
	defer done()
	used, err := p.c.store.FindKey(ctx, p.name, scope, key, k.CreatedAt-keyLife)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return do(&k)
	case err != nil:
		return zero, internal("find idempotency key", err)
	case used.RequestHash != k.RequestHash:
		return zero, api.BadRequest("header Idempotency-Key: was used for another request; use a new key for each")
	}
	return find(used.ResultID)
}

// enter waits until no other request with this key is under way.
func (c *Control) enter(ctx context.Context, k inflightKey) (leave func(), err error) {
	mine := make(chan struct{})
	for {
		c.mu.Lock()
		other, busy := c.inflight[k]
		if !busy {
			c.inflight[k] = mine
		}
		c.mu.Unlock()
		if !busy {
			return func() {
				c.mu.Lock()
				delete(c.inflight, k)
				c.mu.Unlock()
				close(mine)
			}, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
