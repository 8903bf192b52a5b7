// Package linstor follows a LINSTOR controller and keeps what it says of every resource.
//
// No other package speaks to LINSTOR, and only its package client knows the wire. A [Feed] follows the promotion events and reads by
// REST what they announce: an agenda knows what is due, and readers read it, for all who want the same. A [Store] holds the outcome with
// the time since which each fact has held. Events are hints: only a REST read makes the store true, and [Feed.Refresh] takes a
// fresh one for a decision that leads to a deletion.
//
// LINSTOR omits what it does not know. Everything here is therefore three-valued: a value that is
// absent on the wire is unknown, and neither false nor 0.
package linstor
