package agentbin

import "embed"

// The pattern always matches this very file, so that it is no error when the
// agent was not built yet.
//
//go:embed agent*_amd64*
var files embed.FS
