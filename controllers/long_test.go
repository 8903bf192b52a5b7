package controllers

import "testing"

// long leaves a test to "make test-maintainers", which plays it without the race detector.
func long(t *testing.T) {
	t.Helper()
	if underRace {
		t.Skip("it takes minutes with the race detector")
	}
}
