//go:build cgo

package main

const builtWithCgo = true
