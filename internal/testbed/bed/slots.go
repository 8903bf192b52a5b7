package bed

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

// slotPoll is how often Take looks for a free slot.
const slotPoll = 200 * time.Millisecond

// Slots are N files in a folder, each of which lets one caller go on, whatever processes they belong to. A slot is taken by the
// kernel's lock on its file, which also ends with the process: no process that was killed leaves a slot taken.
type Slots struct {
	Dir string
	N   int
}

// UserSlots returns slots that all processes of this user share on this machine.
func UserSlots(what string, n int) Slots {
	return Slots{Dir: filepath.Join(os.TempDir(), "piraeus-ha-testbed-"+what+"-"+strconv.Itoa(os.Getuid())), N: n}
}

// Take waits for a free slot and returns its number, and what gives it back.
func (s Slots) Take(ctx context.Context) (slot int, release func(), err error) {
	ticker := time.NewTicker(slotPoll)
	defer ticker.Stop()
	for {
		for i := range s.N {
			release, err := Lock(filepath.Join(s.Dir, strconv.Itoa(i)))
			if !errors.Is(err, ErrLocked) {
				return i, release, err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return 0, nil, fmt.Errorf("none of %d slots in %s is free: %w", s.N, s.Dir, ctx.Err())
		}
	}
}

// ErrLocked is the error of Lock if another caller has locked the file.
var ErrLocked = errors.New("it is locked")

// Lock locks a file, which it creates, and returns what unlocks it.
func Lock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}
