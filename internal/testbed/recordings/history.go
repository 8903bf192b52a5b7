package recordings

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// long is from when on an answer counts as one that LINSTOR held back.
const long = Seconds(time.Second)

// answer is what LINSTOR answers for a path from a time on, until the next.
type answer struct {
	// from is the earliest time at which a request can have begun that gets this answer.
	from Seconds
	// at is when it was recorded, and held is set when a request must wait until then.
	at   Seconds
	held bool
	// refused is set where LINSTOR did not answer.
	refused bool
	status  int
	body    json.RawMessage
}

// passing tells whether an answer says more about one request than about LINSTOR: who asks after it gets another.
func (a answer) passing() bool { return a.refused || a.status >= http.StatusInternalServerError }

// history is what LINSTOR answers for one path.
type history []answer

// at returns the answer to a request that begins then, and when it comes.
func (h history) at(t Seconds) (found answer, when Seconds) {
	i := 0
	for i+1 < len(h) && h[i+1].from <= t {
		i++
	}
	for h[i].passing() && (h[i].refused || t >= h[i].at) && i+1 < len(h) {
		i++
	}
	if h[i].held {
		return h[i], max(t, h[i].at)
	}
	return h[i], t
}

// histories returns the answers of all recorded paths.
func (t *Transcript) histories() map[string]history {
	all := map[string]history{}
	last := map[string]Line{}
	for _, line := range t.Lines {
		if line.Get == "" || line.End {
			continue
		}
		h, before := all[line.Get], last[line.Get]
		a := answer{
			from: line.T - line.Took, at: line.T, refused: line.Error != "", status: line.Status, body: line.Body,
			// The first answer of all, or of a new process, is not known any sooner.
			held: line.Took >= long || len(h) == 0 || h[len(h)-1].refused,
		}
		if len(h) > 0 && !a.held {
			a.from = max(t.changed(before, line), h[len(h)-1].from)
		}
		all[line.Get], last[line.Get] = append(h, a), line
	}
	return all
}

// changed returns when LINSTOR began to give an answer in place of the one before. The recorder asks a few times a second, or
// every five seconds, and a client that asks after an event must not be told what was true before it. So the answer holds from the
// event that it agrees with, or from where the call that made it shows first; without either, from where the recorder's own
// request began.
func (t *Transcript) changed(before, line Line) Seconds {
	begin := line.T - line.Took
	since := before.T - before.Took
	if line.Same > 0 {
		since = line.SameUntil - max(before.Took, line.Took)
	}
	for _, l := range t.Lines {
		if l.SSE == eventMayPromote && l.T >= since && l.T <= line.T && announces(l.Data, before.Body, line.Body) {
			return l.T
		}
	}
	for _, call := range t.Lines {
		if call.isCall() && call.Began >= before.T-before.Took && call.Began <= begin && call.T >= since {
			begin = min(begin, max(since, t.firstSign(call)))
		}
	}
	return begin
}

// firstSign returns when the first request began whose answer can show what a call did. LINSTOR writes all that a call does in
// one step, before it answers.
func (t *Transcript) firstSign(call Line) Seconds {
	first := call.T
	for _, l := range t.Lines {
		if begin := l.T - l.Took; l.Get != "" && !l.End && begin >= call.Began {
			first = min(first, begin)
		}
	}
	return first
}

// replica is as much of a replica in a list as an event tells.
type replica struct {
	Name     string `json:"name"`
	NodeName string `json:"node_name"`
	Layer    struct {
		DRBD struct {
			MayPromote *bool `json:"may_promote"`
		} `json:"drbd"`
	} `json:"layer_object"`
}

// promotion is an event.
type promotion struct {
	Resource   string `json:"resource_name"`
	Node       string `json:"node_name"`
	MayPromote *bool  `json:"may_promote,omitempty"`
}

// announces tells whether an event is news to one list of replicas and true by the next.
func announces(event, before, after json.RawMessage) bool {
	var e promotion
	if json.Unmarshal(event, &e) != nil {
		return false
	}
	return !e.trueBy(before) && e.trueBy(after)
}

func (p promotion) trueBy(list json.RawMessage) bool {
	for _, r := range replicas(list) {
		if strings.EqualFold(r.Name, p.Resource) && strings.EqualFold(r.NodeName, p.Node) {
			m := r.Layer.DRBD.MayPromote
			return (m == nil) == (p.MayPromote == nil) && (m == nil || *m == *p.MayPromote)
		}
	}
	return false
}

// replicas decodes a list of replicas; what is none has none.
func replicas(list json.RawMessage) []replica {
	var all []replica
	if json.Unmarshal(list, &all) != nil {
		return nil
	}
	return all
}

// outage is a time in which LINSTOR refuses connections.
type outage struct{ from, to Seconds }

// outages returns when LINSTOR was not there, by what any of the recorder's requests met with.
func (t *Transcript) outages() []outage {
	var all []outage
	away := false
	for i, line := range t.Lines {
		switch {
		case line.Error != "" && !away:
			from := line.T
			for _, l := range t.Lines[:i] {
				if l.SSE == streamClosed && line.T-l.T < long {
					from = min(from, l.T)
				}
			}
			away = true
			all = append(all, outage{from: from, to: t.end()})
		case away && line.Error == "" && (line.Status != 0 || line.SSE == streamConnected):
			away = false
		}
		if last := len(all) - 1; last >= 0 && !line.End && line.T > all[last].from && (line.Status != 0 || line.SSE == streamConnected) {
			all[last].to = min(all[last].to, max(line.T-line.Took, all[last].from))
		}
	}
	return all
}

func (t *Transcript) start() Seconds { return t.Lines[0].T - t.Lines[0].Took }

func (t *Transcript) end() Seconds { return t.Lines[len(t.Lines)-1].T }
