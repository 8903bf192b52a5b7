// Package cli is the command line around the controller: by what name the program was called, and which of its commands is meant. Without
// a command the program is the controller itself, whose options internal/options knows.
package cli
