package server

import (
	"encoding/json"
	"net/http"
	"reflect"
	"sync"

	"github.com/glovebox-dev/glovebox/api"
	"github.com/glovebox-dev/glovebox/internal/openapi"
)

// descriptionPath is where the API describes itself.
const descriptionPath = "/openapi.json"

const (
	octets      = "application/octet-stream"
	gzipArchive = "application/gzip"
)

// describedTypes are those that write their JSON themselves.
var describedTypes = openapi.Types{
	reflect.TypeFor[api.Int](): int64(0),
	reflect.TypeFor[api.NetworkPolicy](): []any{
		map[string]any{"type": "string", "enum": []string{api.PolicyAllowAll, api.PolicyDenyAll}}, api.NetworkPolicy{},
	},
	reflect.TypeFor[api.AllowList]():      []any{[]string{}, map[string][]api.PolicyRule{}},
	reflect.TypeFor[api.SessionStatus]():  map[string]any{"type": "string", "enum": words(api.StatusPending, api.StatusRunning, api.StatusStopping, api.StatusStopped, api.StatusFailed, api.StatusAborted, api.StatusSnapshotting)},
	reflect.TypeFor[api.SnapshotStatus](): map[string]any{"type": "string", "enum": words(api.SnapshotCreated, api.SnapshotDeleted, api.SnapshotFailed)},
}

func words[T ~string](list ...T) []string {
	out := make([]string, len(list))
	for i, w := range list {
		out[i] = string(w)
	}
	return out
}

// description is the document, made once.
var description = sync.OnceValues(func() ([]byte, error) {
	info := openapi.Info{
		Title:   "Glovebox",
		Version: "2",
		Description: "The API of Vercel Sandbox, and what Glovebox adds to it. Every path also works below /api. " +
			"Times are milliseconds since 1970, durations milliseconds. A request is for the project of its token; a token for all projects names one in the query (projectId or project) or the body.",
		Error: api.ErrorResponse{},
	}
	return json.Marshal(openapi.Document(info, operations(), describedTypes))
})

func (c *call) describe() error {
	text, err := description()
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/json")
	_, _ = c.w.Write(text) // a client that has gone
	return nil
}

// operations describes each route; a test compares them.
func operations() map[string]openapi.Operation {
	table := map[string]openapi.Operation{
		"GET /healthz":                          {ID: "health", Summary: "Whether sandboxes can be made; 503 until then", Answer: Health{}, Open: true},
		"GET /health":                           {ID: "alive", Summary: "Whether the server answers", Answer: Health{}, Open: true},
		"GET /.well-known/jwks":                 {ID: "jwks", Summary: "The keys that verify the tokens of forwarded requests", AnswerType: "application/json", Open: true},
		"GET /.well-known/openid-configuration": {ID: "openIDConfiguration", Summary: "The issuer of those tokens, and where its keys are", AnswerType: "application/json", Open: true},
		"GET " + descriptionPath:                {ID: "describe", Summary: "This document", AnswerType: "application/json", Open: true},
		"GET " + interactivePath:                {ID: "terminal", Summary: "The WebSocket of a terminal: a text frame of TerminalStart, then its bytes both ways, TerminalResize, and TerminalExit at the end", Query: []openapi.Param{{Name: "token", About: "Of the call that opened it; works once"}}, Status: http.StatusSwitchingProtocols, Open: true},
		"GET /v1/status":                        {ID: "status", Summary: "What the server has and uses", Answer: api.Status{}},
		"GET /v1/disk":                          {ID: "diskUse", Summary: "What takes up the server's disk; for a token of all projects", Answer: api.DiskUse{}},
		"POST /v1/prune":                        {ID: "prune", Summary: "Remove what nothing needs; for a token of all projects", Body: api.PruneRequest{}, Answer: api.PruneResponse{}},
		"GET /v2/user":                          {ID: "getUser", Summary: "The one user that there is", Answer: userResponse{}},
		"GET /v2/teams":                         {ID: "listTeams", Summary: "The one team that there is", Answer: teamsResponse{}},
		"GET /v2/teams/{team}":                  {ID: "getTeam", Summary: "A team of any name", Answer: accountTeam{}},
		"GET /v2/projects/{project}":            {ID: "getProject", Summary: "A project that the token may use", Answer: accountProject{}},
		"POST /v11/projects": {ID: "createProject", Summary: "A project, which is made on first use", Body: struct {
			Name string `json:"name"`
		}{}, Answer: accountProject{}},
	}
	// Both versions do the same.
	for base, suffix := range map[string]string{"/v2/sandboxes": "", "/v3/sandboxes": "V3"} {
		for _, group := range []map[string]openapi.Operation{sandboxOperations(base), sessionOperations(base), commandOperations(base), snapshotOperations(base), driveOperations(base)} {
			for key, op := range group {
				op.ID += suffix
				table[key] = op
			}
		}
	}
	return table
}
