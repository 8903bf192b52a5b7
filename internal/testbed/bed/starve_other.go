//go:build !linux

package bed

import "errors"

// starve fails: only Linux can limit the memory of a process that runs.
func starve(int) error { return errors.ErrUnsupported }
