// Package vercel carries the files that point the published client at a
// Glovebox server, so that the binary alone can install them.
package vercel

import "embed"

// Register is the file in Files that is loaded with node --import.
const Register = "register.mjs"

// Files is everything that Register needs.
//
//go:embed package.json register.mjs index.mjs index.d.ts lib/*.mjs
var Files embed.FS
