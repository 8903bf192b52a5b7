package kubelet

import (
	"math/rand/v2"
	"time"
)

// Never as Timings.StatusOnChange leaves changes of the node status to the next periodic report.
const Never time.Duration = -1

// Timings says how fast a simulated kubelet works. Zero fields take the defaults, which are those of
// the real kubelet's configuration unless the field says otherwise.
type Timings struct {
	// LeaseRenewal is the time between two renewals of the node's Lease (10 s).
	LeaseRenewal time.Duration
	// LeaseDuration is spec.leaseDurationSeconds of that Lease (40 s).
	LeaseDuration time.Duration
	// StatusUpdate is nodeStatusUpdateFrequency (10 s): how often the node's status is computed. It
	// is posted if it changed.
	StatusUpdate time.Duration
	// StatusReport is nodeStatusReportFrequency (5 min): how often an unchanged status is posted.
	StatusReport time.Duration
	// StatusOnChange is the delay after which a change of volumesInUse is posted ahead of the next
	// periodic update (100 ms). The real kubelet has no such thing: it posts volumesInUse with the
	// periodic update only (kubernetes issue 28141), so that a pod with an attachable volume starts
	// up to 10 s later than here. Never reproduces that.
	StatusOnChange time.Duration
	// VolumeLoop is the period of the volume manager's loops (100 ms).
	VolumeLoop time.Duration
	// PodStartMin and PodStartMax bound the time from the volumes being mounted to the containers
	// running (100 to 300 ms): there are no images to pull.
	PodStartMin, PodStartMax time.Duration
	// PodStop is the time containers take to stop after SIGTERM (200 ms).
	PodStop time.Duration
	// RetryMin and RetryMax bound the doubling backoff of what failed: mounting, opening, and
	// requests to the API (500 ms to 2 min 2 s for mounts in the real kubelet; here at most 5 s, so
	// that a test need not wait for minutes).
	RetryMin, RetryMax time.Duration
	// CrashLoopMin and CrashLoopMax bound the doubling backoff between restarts of a process that
	// ended (10 s to 5 min).
	CrashLoopMin, CrashLoopMax time.Duration
}

// withDefaults returns t with its zero fields filled in.
func (t Timings) withDefaults() Timings {
	for _, d := range []struct {
		field    *time.Duration
		fallback time.Duration
	}{
		{&t.LeaseRenewal, 10 * time.Second},
		{&t.LeaseDuration, 40 * time.Second},
		{&t.StatusUpdate, 10 * time.Second},
		{&t.StatusReport, 5 * time.Minute},
		{&t.StatusOnChange, 100 * time.Millisecond},
		{&t.VolumeLoop, 100 * time.Millisecond},
		{&t.PodStartMin, 100 * time.Millisecond},
		{&t.PodStartMax, 300 * time.Millisecond},
		{&t.PodStop, 200 * time.Millisecond},
		{&t.RetryMin, 500 * time.Millisecond},
		{&t.RetryMax, 5 * time.Second},
		{&t.CrashLoopMin, 10 * time.Second},
		{&t.CrashLoopMax, 5 * time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.fallback
		}
	}
	t.PodStartMax = max(t.PodStartMax, t.PodStartMin)
	t.CrashLoopMin = min(t.CrashLoopMin, t.CrashLoopMax)
	return t
}

// podStart draws the start-up time of one pod.
func (t Timings) podStart() time.Duration {
	return t.PodStartMin + rand.N(t.PodStartMax-t.PodStartMin+1)
}
