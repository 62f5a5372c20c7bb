//go:build race

package control

import "flag"

// The race detector makes the database in Go some fifteen times slower: fewer
// tries of the model, unless the command line says how many.
func init() {
	if err := flag.Set("rapid.checks", "25"); err != nil {
		panic(err)
	}
}
