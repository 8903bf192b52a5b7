// Package recordings replays what a real LINSTOR controller said, in virtual time.
//
// The directory testdata holds transcripts of a real controller with real satellites; its README tells how they were made
// and what each shows. [Load] reads one. [Play] serves it as LINSTOR would have answered, to any client of LINSTOR's REST API
// and event stream. The package's own tests let the product's client, store, clocks and policy follow such a LINSTOR, and compare
// each decision with what the last line of the transcript demands.
//
// They also play the scenario of each transcript in the simulated LINSTOR over the model of DRBD: of every node, replica, setting and
// event it must say the same in the same order, and at about the same time. What it says otherwise is listed with the reason, and a
// listed difference that is gone fails the test.
//
// The files are data and stay as they are. Where a test needs another answer it says so itself.
package recordings
