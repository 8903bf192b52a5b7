package soak

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Footprint is what one process takes.
type Footprint struct {
	// Pod is its pod.
	Pod string
	// Goroutines is their number, Heap the bytes of live objects and Resident those of memory.
	Goroutines, Heap, Resident float64
}

// String returns it for people.
func (f Footprint) String() string {
	return fmt.Sprintf("%s: %.0f goroutines, heap %.1f MiB, resident %.1f MiB", f.Pod, f.Goroutines, f.Heap/(1<<20), f.Resident/(1<<20))
}

// footprints asks all processes that run.
func (r *runner) footprints(ctx context.Context) []Footprint {
	var all []Footprint
	for _, p := range r.bed.ControllerProcesses() {
		if f, err := footprint(ctx, p.Pod, p.MetricsURL); err == nil {
			all = append(all, f)
		}
	}
	return all
}

func footprint(ctx context.Context, pod, url string) (Footprint, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return Footprint{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return Footprint{}, err
	}
	defer func() { _ = response.Body.Close() }()
	f := Footprint{Pod: pod}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, text, _ := strings.Cut(lines.Text(), " ")
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			continue
		}
		switch name {
		case "go_goroutines":
			f.Goroutines = value
		case "go_memstats_heap_alloc_bytes":
			f.Heap = value
		case "process_resident_memory_bytes":
			f.Resident = value
		}
	}
	return f, nil
}
