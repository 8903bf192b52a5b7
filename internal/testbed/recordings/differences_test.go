package recordings_test

import (
	"slices"
	"strings"
)

// difference is something that the simulated LINSTOR says otherwise than the recorded one, and why that stays.
type difference struct {
	file string
	// tracks are where it shows, recorded and simulated all that is said there, in order.
	tracks              []string
	recorded, simulated string
	why                 string
}

// Reasons for differences.
const (
	// messages is the order of messages within a tenth of a second, which comes as it comes.
	messages = "a satellite's first words of a replica come in several messages, whose order is not fixed"
	// smallModel is that the lab's DRBD was no DRBD in these recordings, see the README of the recordings.
	smallModel = "the lab's small model of DRBD lets a diskless node count its own connections alone, " +
		"and a node keep a quorum that it has not: in DRBD 9.2 a diskless node takes the word of a quorate peer, " +
		"and quorum is reckoned anew when it is set"
	// busy is that real satellites do one thing after the other.
	busy = "node-c was still busy with its new disk when it was told of node-d; the model's satellite hears of both at once"
	// twoCommits is that LINSTOR asks for a disk first and drops the flags of a diskless replica later.
	twoCommits = "the flags that say that a disk is being added were there for a quarter of a second; the model adds it in one commit"
)

// differences are all of them. Each must be there.
var differences = []difference{
	{
		file: "02-volume-made", tracks: []string{"view: in_use of node-b"}, why: messages,
		recorded: "nothing, no state, not said, false", simulated: "nothing, no state, false",
	},
	{
		file: "10-linstor-restart",
		tracks: []string{
			"list: in_use of node-b", "list: in_use of node-c", "view: in_use of node-b", "view: in_use of node-c",
		},
		recorded: "false, no state, not said, false", simulated: "false, no state, false", why: messages,
	},
	{
		file: "11-linstor-restart-in-loss", tracks: []string{"view: in_use of node-c"}, why: messages,
		recorded: "false, no state, not said, false", simulated: "false, no state, false",
	},
	{
		file: "13-adjust-fails", tracks: []string{"events: may_promote of node-c"}, why: smallModel,
		recorded: "false", simulated: "false, true",
	},
	{
		file: "13-adjust-fails", tracks: []string{"list: may_promote of node-c", "view: may_promote of node-c"}, why: smallModel,
		recorded: "nothing, false", simulated: "nothing, false, true",
	},
	{
		file: "13-adjust-fails", tracks: []string{"list: score of node-c", "view: score of node-c"}, why: smallModel,
		recorded: "nothing, 0", simulated: "nothing, 0, 1",
	},
	{
		file: "14-node-lost", tracks: []string{"events: may_promote of node-b"}, why: smallModel,
		recorded: "false, true", simulated: "false, true, false, true",
	},
	{
		file: "14-node-lost", tracks: []string{"list: may_promote of node-b", "view: may_promote of node-b"}, why: smallModel,
		recorded: "false, true", simulated: "false, true, false, true",
	},
	{
		file: "14-node-lost", tracks: []string{"list: score of node-b", "view: score of node-b"}, why: smallModel,
		recorded: "10102, 10101", simulated: "10102, 10101, 0, 10101",
	},
	{
		file: "14-node-lost", tracks: []string{"events: may_promote of node-c"}, why: smallModel,
		recorded: "false", simulated: "false, true",
	},
	{
		file: "14-node-lost", tracks: []string{"list: may_promote of node-c", "view: may_promote of node-c"}, why: smallModel,
		recorded: "nothing, false", simulated: "nothing, false, true",
	},
	{
		file: "14-node-lost", tracks: []string{"list: score of node-c", "view: score of node-c"}, why: smallModel,
		recorded: "nothing, 0", simulated: "nothing, 0, 1",
	},
	{
		file: "20-evicted", tracks: []string{"list: connection to node-d of node-c"}, why: busy,
		recorded: "nothing, Connected true", simulated: "nothing, Connecting false, Connected true",
	},
	{
		file: "21-adjust-fails-again", tracks: []string{"events: may_promote of node-c"}, why: smallModel,
		recorded: "false", simulated: "false, true",
	},
	{
		file: "21-adjust-fails-again", tracks: []string{"list: may_promote of node-c", "view: may_promote of node-c"}, why: smallModel,
		recorded: "nothing, false", simulated: "nothing, false, true",
	},
	{
		file: "21-adjust-fails-again", tracks: []string{"list: score of node-c", "view: score of node-c"}, why: smallModel,
		recorded: "nothing, 0", simulated: "nothing, 1",
	},
	{
		file: "22-lost-after-eviction", tracks: []string{"list: flags of node-c", "view: flags of node-c"}, why: twoCommits,
		recorded:  "DISKLESS DRBD_DISKLESS TIE_BREAKER, DISKLESS DISK_ADDING DISK_ADD_REQUESTED DRBD_DISKLESS, nothing",
		simulated: "DISKLESS DRBD_DISKLESS TIE_BREAKER, nothing",
	},
	{
		file: "22-lost-after-eviction", tracks: []string{"view: may_promote of node-c"}, why: twoCommits,
		recorded: "false, nothing, false, true", simulated: "false, true",
	},
	{
		file: "22-lost-after-eviction", tracks: []string{"view: score of node-c"}, why: twoCommits,
		recorded: "2, 1, nothing, 10102, 10101", simulated: "2, 1, 10102, 10101",
	},
}

// known returns the numbers of the differences that explain what is said in a track of a recording.
func known(file, name string, recorded, simulated *track) (found []int) {
	for i, d := range differences {
		if d.file == file && slices.Contains(d.tracks, name) && d.recorded == recorded.said() && d.simulated == simulated.said() {
			found = append(found, i)
		}
	}
	return found
}

// said is all that is said in a track, in order.
func (t *track) said() string {
	var all []string
	for _, w := range t.words {
		all = append(all, w.says)
	}
	return strings.Join(all, ", ")
}
