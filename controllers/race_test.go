//go:build race

package controllers

// underRace tells whether the race detector watches, which makes everything ten times slower.
const underRace = true
