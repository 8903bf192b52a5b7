// Package safely keeps the panic of one goroutine from ending the process.
package safely

import (
	"fmt"
	"runtime/debug"
)

// Do calls a function and returns its error. It converts a panic into an error with its stack.
func Do(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return do()
}
