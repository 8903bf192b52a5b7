package drbd

import (
	"math/rand/v2"
	"time"
)

// Span is the shortest and the longest of some durations that were measured.
type Span struct{ Min, Max time.Duration }

// Draw returns any duration of the span.
func (s Span) Draw(random *rand.Rand) time.Duration {
	return s.Min + time.Duration(random.Int64N(int64(s.Max-s.Min)+1))
}

// What real DRBD 9.2 took, with the default ping-int of 10 s. A cut that is shorter than the time that an end would take to
// notice it leaves no trace at that end.
//
// Of four cuts of a writing Primary two were noticed soon, and one of 8 s by nobody. Whether a link is of the former kind or of the
// latter is open until it is cut, so that it is drawn.
var (
	// MeasuredLoss is the time from the silence of a peer, such as a power loss, to an end of the connection noticing it.
	MeasuredLoss = Span{6300 * time.Millisecond, 11300 * time.Millisecond}
	// MeasuredCutPeer and MeasuredCutPrimary are those of both ends of a connection of a writing Primary that was cut and soon
	// noticed: the Primary itself may believe in it for seconds longer than its peers.
	MeasuredCutPeer    = Span{6500 * time.Millisecond, 7100 * time.Millisecond}
	MeasuredCutPrimary = Span{6600 * time.Millisecond, 10600 * time.Millisecond}
	// MeasuredCutLate is that of both ends of one that was noticed late.
	MeasuredCutLate = Span{8001 * time.Millisecond, MeasuredLoss.Max}
	// MeasuredFlap is how long survivors say yes, no, and yes again.
	MeasuredFlap = Span{2 * time.Millisecond, 13 * time.Millisecond}
)

// MeasuredHealFlap is how long an outdated replica says at a heal that it may be promoted.
const MeasuredHealFlap = 600 * time.Microsecond

// Measured returns the delays of a cluster that notices as a real one was seen to: each end of each connection in a time of its
// own, drawn when the connection falls silent. The cluster alone may use random.
func Measured(random *rand.Rand) Options {
	return Options{
		NoticeEach: true,
		Flap:       MeasuredFlap.Draw(random),
		HealFlap:   MeasuredHealFlap,
		Detect:     func(string, string) time.Duration { return MeasuredLoss.Draw(random) },
		DetectCut: func(string, string) (byPeer, byPrimary time.Duration) {
			if random.IntN(2) == 0 {
				return MeasuredCutPeer.Draw(random), MeasuredCutPrimary.Draw(random)
			}
			return MeasuredCutLate.Draw(random), MeasuredCutLate.Draw(random)
		},
	}
}
