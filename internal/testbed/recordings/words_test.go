package recordings_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
)

// word is what LINSTOR says of one thing from a time on, until its next word.
type word struct {
	says string
	// LINSTOR began to say it after the time after, and by the time by at the latest. An event is of one moment.
	after, by recordings.Seconds
	// answer is the number of the answer that said it first, among all of its path; negative for an event.
	answer int
}

// track is all that LINSTOR says of one thing, such as "list: score of node-b", in order.
type track struct {
	name  string
	words []word
	// path is where it is asked for; empty for events. gap is how far two answers are apart there, and the time that one takes.
	path string
	gap  recordings.Seconds
}

func (t track) events() bool { return t.path == "" }

// lasts returns how long LINSTOR said a word, at most.
func (t track) lasts(i int) recordings.Seconds {
	if i+1 == len(t.words) {
		return recordings.Seconds(time.Hour)
	}
	return t.words[i+1].by - t.words[i].after
}

func (t track) String() string {
	var all []string
	for _, w := range t.words {
		all = append(all, w.String())
	}
	return strings.Join(all, ", ")
}

func (w word) String() string {
	if w.after == w.by {
		return fmt.Sprintf("%q at %v", w.says, w.by)
	}
	return fmt.Sprintf("%q from %v to %v on", w.says, w.after, w.by)
}

// nothing is the word for what an answer does not have.
const nothing = "nothing"

// tracksOf takes the lines of a transcript apart. The events keep repetitions, the answers do not.
func tracksOf(lines []recordings.Line) map[string]*track {
	tracks := map[string]*track{}
	for _, line := range lines {
		if line.SSE != "" {
			addEvent(tracks, line)
		}
	}
	for path, all := range answersOf(lines) {
		addAnswers(tracks, path, all)
	}
	return tracks
}

// addAnswers adds what all answers of a path say.
func addAnswers(tracks map[string]*track, path string, all []recordings.Line) {
	seen := map[string]bool{}
	for i, line := range all {
		if line.End {
			continue
		}
		after := line.T - line.Took
		if i > 0 {
			after = lastBefore(all[i-1], line)
		}
		said := wordsOf(path, line)
		for name := range seen {
			if _, ok := said[name]; !ok && said[statusOf(path)] == "200" {
				said[name] = nothing
			}
		}
		for name, says := range said {
			t := tracks[name]
			if t == nil {
				t = &track{name: name, path: path, gap: gapOf(all)}
				tracks[name] = t
				seen[name] = true
				if i > 0 {
					t.words = append(t.words, word{nothing, all[0].T - all[0].Took, all[0].T, 0})
				}
			}
			if n := len(t.words); n == 0 || t.words[n-1].says != says {
				t.words = append(t.words, word{says, after, line.T, i})
			}
		}
	}
}

// addEvent adds one event, or the beginning or end of the stream.
func addEvent(tracks map[string]*track, line recordings.Line) {
	name, says := "events: the stream", line.SSE
	if line.Data != nil {
		var event struct {
			Node       string `json:"node_name"`
			MayPromote *bool  `json:"may_promote"`
		}
		if json.Unmarshal(line.Data, &event) != nil {
			return
		}
		name, says = "events: may_promote of "+event.Node, maybe(event.MayPromote, strconv.FormatBool)
	}
	if tracks[name] == nil {
		tracks[name] = &track{name: name}
	}
	tracks[name].words = append(tracks[name].words, word{says, line.T, line.T, -1})
}

// answersOf sorts the answers of a transcript by path. What the product does not ask for is left out.
func answersOf(lines []recordings.Line) map[string][]recordings.Line {
	all := map[string][]recordings.Line{}
	for _, line := range lines {
		if line.Get != "" && placeOf(line.Get) != "" {
			all[line.Get] = append(all[line.Get], line)
		}
	}
	return all
}

// lastBefore is when the last request began whose answer was the one before.
func lastBefore(before, line recordings.Line) recordings.Seconds {
	if line.Same == 0 {
		return before.T - before.Took
	}
	return line.SameUntil - min(before.Took, line.Took, long)
}

// long is from when on an answer is one that LINSTOR held back.
const long = recordings.Seconds(time.Second)

// gapOf is how far two answers are apart, on average and a quarter more.
func gapOf(all []recordings.Line) recordings.Seconds {
	count := 0
	for _, line := range all {
		count += line.Same
		if !line.End {
			count++
		}
	}
	length := all[len(all)-1].T - all[0].T
	return 5 * length / recordings.Seconds(4*max(count-1, 1))
}

// placeOf names a path as the tracks do; empty for one that nobody asks for.
func placeOf(path string) string {
	path, _, _ = strings.Cut(path, "?")
	switch {
	case path == "/v1/nodes":
		return "nodes"
	case path == "/v1/resource-definitions":
		return "definition"
	case path == "/v1/resource-groups":
		return "groups"
	case path == "/v1/controller/properties":
		return "controller"
	case path == "/v1/view/resources":
		return "view"
	case strings.HasSuffix(path, "/resources"):
		return "list"
	}
	return ""
}

func statusOf(path string) string { return placeOf(path) + ": answer" }

// wordsOf is what one answer says, by the name of the track.
func wordsOf(path string, line recordings.Line) map[string]string {
	place := placeOf(path)
	said := map[string]string{statusOf(path): "no answer"}
	if line.Error != "" {
		return said
	}
	said[statusOf(path)] = strconv.Itoa(line.Status)
	if line.Status != http.StatusOK {
		return said
	}
	say := func(what, of, says string) {
		if of != "" {
			what += " of " + of
		}
		said[place+": "+what] = says
	}
	switch place {
	case "nodes":
		for _, n := range decoded[[]recordedNode](line.Body) {
			say("status", n.Name, n.Status)
			say("flags", n.Name, flagsText(n.Flags))
		}
	case "definition", "groups":
		for _, d := range decoded[[]recordedProps](line.Body) {
			say("group", d.Name, cmp.Or(d.Group, nothing))
			sayProps(say, d.Name, d.Props)
		}
	case "controller":
		sayProps(say, "", decoded[map[string]string](line.Body))
	default:
		for _, r := range decoded[[]recordedReplica](line.Body) {
			r.say(say)
		}
	}
	return said
}

// properties are those that the product reads or LINSTOR's automatics go by.
var properties = []string{
	"DrbdOptions/Resource/quorum", "Internal/Drbd/QuorumSetBy", "DrbdOptions/Resource/on-no-quorum", "DrbdOptions/auto-add-quorum-tiebreaker",
}

func sayProps(say func(what, of, says string), of string, props map[string]string) {
	for _, key := range properties {
		say(key, of, cmp.Or(props[key], nothing))
	}
}

type recordedNode struct {
	Name   string   `json:"name"`
	Status string   `json:"connection_status"`
	Flags  []string `json:"flags"`
}

// recordedProps is a definition or a group.
type recordedProps struct {
	Name  string            `json:"name"`
	Group string            `json:"resource_group_name"`
	Props map[string]string `json:"props"`
}

type recordedReplica struct {
	Node  string   `json:"node_name"`
	Flags []string `json:"flags"`
	State *struct {
		InUse *bool `json:"in_use"`
	} `json:"state"`
	Layer struct {
		DRBD struct {
			MayPromote  *bool      `json:"may_promote"`
			Score       *int       `json:"promotion_score"`
			Volumes     []struct{} `json:"drbd_volumes"`
			Connections map[string]struct {
				Connected bool   `json:"connected"`
				Message   string `json:"message"`
			} `json:"connections"`
		} `json:"drbd"`
	} `json:"layer_object"`
	Volumes []struct {
		State struct {
			Disk string `json:"disk_state"`
		} `json:"state"`
	} `json:"volumes"`
}

// percent is how far a resync has come.
var percent = regexp.MustCompile(`^SyncTarget\(.*\)$`)

// say says all of a replica. A resync is shown with its progress, which the model does not have.
func (r recordedReplica) say(say func(what, of, says string)) {
	drbd := r.Layer.DRBD
	say("flags", r.Node, flagsText(r.Flags))
	say("number of volumes", r.Node, strconv.Itoa(len(drbd.Volumes)))
	say("may_promote", r.Node, maybe(drbd.MayPromote, strconv.FormatBool))
	say("score", r.Node, maybe(drbd.Score, strconv.Itoa))
	inUse := "no state"
	if r.State != nil {
		inUse = "not said"
		if r.State.InUse != nil {
			inUse = strconv.FormatBool(*r.State.InUse)
		}
	}
	say("in_use", r.Node, inUse)
	for peer, c := range drbd.Connections {
		say("connection to "+peer, r.Node, fmt.Sprintf("%s %t", c.Message, c.Connected))
	}
	for number, v := range r.Volumes {
		disk := percent.ReplaceAllString(cmp.Or(v.State.Disk, nothing), "Inconsistent")
		say("disk "+strconv.Itoa(number), r.Node, disk)
	}
}

func flagsText(flags []string) string {
	return cmp.Or(strings.Join(slices.Sorted(slices.Values(flags)), " "), nothing)
}

func maybe[T any](value *T, text func(T) string) string {
	if value == nil {
		return nothing
	}
	return text(*value)
}

// decoded decodes a body; one of another shape has nothing.
func decoded[T any](body json.RawMessage) (value T) {
	_ = json.Unmarshal(body, &value)
	return value
}

// namesOf returns the names of all tracks of either.
func namesOf(a, b map[string]*track) []string {
	names := slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b)))
	slices.Sort(names)
	return slices.Compact(names)
}
