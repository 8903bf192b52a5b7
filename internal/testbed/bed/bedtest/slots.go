package bedtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const (
	// ownBeds is how many tests of this user may run a bed of their own at a time on this machine, whatever packages and test
	// runs they belong to. A bed is a whole control plane: many that start together on few cores take longer to become ready than a
	// scenario waits, and each test would be faster after the others.
	ownBeds = 3
	// slotPoll is how often a test that waits looks for a free slot.
	slotPoll = 200 * time.Millisecond
)

// slots are files, each of which lets one bed run. A slot is taken by the kernel's lock on its file, which also ends with the
// process: no test run that was killed leaves a slot taken.
type slots struct {
	dir string
	n   int
}

// ownSlots are those of this user.
func ownSlots() slots {
	return slots{dir: filepath.Join(os.TempDir(), "piraeus-ha-testbed-slots-"+strconv.Itoa(os.Getuid())), n: ownBeds}
}

// take waits for a free slot and returns what gives it back.
func (s slots) take(ctx context.Context) (release func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("slots of test beds: %w", err)
	}
	ticker := time.NewTicker(slotPoll)
	defer ticker.Stop()
	for {
		for i := range s.n {
			release, err := lock(filepath.Join(s.dir, strconv.Itoa(i)))
			if release != nil || err != nil {
				return release, err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("no test bed may be started: %d run: %w", s.n, ctx.Err())
		}
	}
}

// lock locks a file and returns what unlocks it, nil where somebody else has locked it.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("slot of a test bed: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, fmt.Errorf("slot of a test bed: %w", err)
	}
	return func() { _ = file.Close() }, nil
}
