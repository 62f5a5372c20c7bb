// Package state holds what lasts against a model: random work on the files of
// a sandbox and of a drive, and random stops, resumes, snapshots, forks and
// deaths of the server in between, all through a real server.
package state
