package options

import (
	"fmt"
	"os"
)

// Environment variables of client-go, and what they are here where they are not set, in seconds: after how long without a word from the API
// server its connection is asked for one, and how long the answer may take until another connection takes its place.
//
// By client-go's own values, 30 and 15, a connection to an API server that has lost its power is kept for 45 seconds: too long for the
// leader, which gives up its Lease after 7 seconds without a renewal. Five seconds leave it the time for one over a new connection. Shorter
// ones are no gain, as DRBD takes longer to notice the same loss, and would end connections that are well where a process or the API server
// gets no processor time for a moment. It costs little then: requests under way fail and are repeated, watches go on from where they were.
const (
	pingIdleVariable, pingIdle       = "HTTP2_READ_IDLE_TIMEOUT_SECONDS", "2"
	pingTimeoutVariable, pingTimeout = "HTTP2_PING_TIMEOUT_SECONDS", "3"
)

// PingAPI sets how soon a dead connection to the API server is noticed, where the environment does not say so. Call it before anything
// connects.
func PingAPI() error {
	for variable, seconds := range map[string]string{pingIdleVariable: pingIdle, pingTimeoutVariable: pingTimeout} {
		if _, set := os.LookupEnv(variable); set {
			continue
		}
		if err := os.Setenv(variable, seconds); err != nil {
			return fmt.Errorf("setting %s: %w", variable, err)
		}
	}
	return nil
}
