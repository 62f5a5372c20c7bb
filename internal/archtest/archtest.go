// Package archtest holds the rules of the house as tests: which package may
// import which, one comment a package, files of a length that can be read,
// and documents that agree with the code.
package archtest
