// Package linstor follows a LINSTOR controller and keeps what it says of every resource.
//
// It is the only package that knows LINSTOR's wire. A [Client] asks the REST API, a [Feed] follows the
// promotion events and reads by REST what they announce, and a [Store] holds the outcome with the time
// since which each fact has held. Events are hints: only a REST read makes the store true, and
// [Feed.Refresh] takes a fresh one for a decision that leads to a deletion.
//
// LINSTOR omits what it does not know. Everything here is therefore three-valued: a value that is
// absent on the wire is unknown, and neither false nor 0.
package linstor
