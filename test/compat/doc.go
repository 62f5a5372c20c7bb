// Package compat holds the published client, as it is on npm, against a
// running server. The suites are the *.test.mjs files; the Go test beside
// them starts the server, runs each, and looks for what they left.
package compat
