package soak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

const (
	// watchInterval is how often the controller's processes are looked at, and footprintInterval how often asked.
	watchInterval     = time.Second
	footprintInterval = 15 * time.Second
	// settledAge is how long a process has lived when what it takes counts, and longLife how long it must have lived for a
	// trend to be seen.
	settledAge = time.Minute
	longLife   = 5 * time.Minute
	// growth is how much the least of the last third of a life may be above the least of the first, and slack what may
	// come on top: a few connections more, a cache that has seen more.
	growth         = 1.25
	slackRoutines  = 20
	slackBytes     = 4 << 20
	mebibyte       = 1 << 20
	measuredFields = 3
)

// footprint is what a process takes at a moment.
type footprint struct {
	at time.Time
	// goroutines is their number, heap the bytes of live objects and resident those of memory.
	goroutines, heap, resident float64
	// leads is 1 if the process leads, else 0.
	leads float64
}

// Life is what one process took while it led, or while it did not: a leader takes more.
type Life struct {
	// Pod and PID name the process.
	Pod string
	PID int
	// Leader is set if it led.
	Leader bool
	// Age is how long it was watched.
	Age time.Duration
	// Early and Late are the least goroutines, heap and resident memory in the first and in the last third of that,
	// but for the first minute: what is above is garbage or work.
	Early, Late [measuredFields]float64
}

// String returns it for people.
func (l Life) String() string {
	role := "standby"
	if l.Leader {
		role = "leader"
	}
	return fmt.Sprintf("%s %s (%d) in %s: goroutines %.0f → %.0f, heap %.1f → %.1f MiB, resident %.1f → %.1f MiB",
		role, l.Pod, l.PID, l.Age.Round(time.Second), l.Early[0], l.Late[0],
		l.Early[1]/mebibyte, l.Late[1]/mebibyte, l.Early[2]/mebibyte, l.Late[2]/mebibyte)
}

// grows tells whether it takes more and more. Resident memory is shown only: the runtime returns it late.
func (l Life) grows() bool {
	return l.Late[0] > l.Early[0]*growth+slackRoutines || l.Late[1] > l.Early[1]*growth+slackBytes
}

// life sums up what a process took; false if it did not live long enough to tell.
func life(p bed.ControllerProcess, all []footprint) (Life, bool) {
	if len(all) == 0 {
		return Life{}, false
	}
	all = slices.DeleteFunc(slices.Clone(all), func(f footprint) bool { return f.at.Sub(all[0].at) < settledAge })
	if len(all) < measuredFields || all[len(all)-1].at.Sub(all[0].at) < longLife-settledAge {
		return Life{}, false
	}
	third := len(all) / measuredFields
	return Life{
		Pod: p.Pod, PID: p.PID, Leader: all[0].leads == 1, Age: all[len(all)-1].at.Sub(all[0].at) + settledAge,
		Early: least(all[:third]), Late: least(all[len(all)-third:]),
	}, true
}

// lives returns the lives of a process as a standby and as a leader.
func lives(p bed.ControllerProcess, all []footprint) []Life {
	var result []Life
	for len(all) > 0 {
		end := slices.IndexFunc(all, func(f footprint) bool { return f.leads != all[0].leads })
		if end < 0 {
			end = len(all)
		}
		if l, ok := life(p, all[:end]); ok {
			result = append(result, l)
		}
		all = all[end:]
	}
	return result
}

func least(all []footprint) [measuredFields]float64 {
	result := [measuredFields]float64{all[0].goroutines, all[0].heap, all[0].resident}
	for _, f := range all[1:] {
		result[0], result[1], result[2] = min(result[0], f.goroutines), min(result[1], f.heap), min(result[2], f.resident)
	}
	return result
}

// watchProcesses notes what the controller's processes take, and which of them end without a reason.
func (r *runner) watchProcesses(ctx context.Context) {
	type watched struct {
		bed.ControllerProcess
		footprints []footprint
		asked      time.Time
		ended      bool
	}
	all := map[int]*watched{}
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		for _, p := range r.bed.ControllerProcesses() {
			if all[p.PID] == nil {
				all[p.PID] = &watched{ControllerProcess: p}
			}
		}
		for _, p := range all {
			if !p.ended && errors.Is(syscall.Kill(p.PID, 0), syscall.ESRCH) {
				p.ended = true
				r.endedAt(p.ControllerProcess, time.Now())
			}
			if now := time.Now(); !p.ended && now.Sub(p.asked) >= footprintInterval {
				p.asked = now
				if f, err := ask(ctx, p.MetricsURL); err == nil {
					p.footprints = append(p.footprints, f)
				}
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(all)) {
		for _, l := range lives(all[pid].ControllerProcess, all[pid].footprints) {
			r.note(func(report *Report) {
				report.Lives = append(report.Lives, l)
				if l.grows() {
					report.Growing = append(report.Growing, l.String())
				}
			})
		}
	}
}

// ask reads what a process takes from its metrics.
func ask(ctx context.Context, url string) (footprint, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return footprint{}, fmt.Errorf("metrics: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return footprint{}, fmt.Errorf("metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	f := footprint{at: time.Now()}
	fields := map[string]*float64{
		"go_goroutines": &f.goroutines, "go_memstats_heap_alloc_bytes": &f.heap, "process_resident_memory_bytes": &f.resident,
		"leader_election_master_status": &f.leads,
	}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		name, _, _ = strings.Cut(name, "{")
		if field := fields[name]; field != nil {
			if *field, err = strconv.ParseFloat(text, 64); err != nil {
				return footprint{}, fmt.Errorf("metrics: %w", err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return footprint{}, fmt.Errorf("metrics: %w", err)
	}
	return f, nil
}
