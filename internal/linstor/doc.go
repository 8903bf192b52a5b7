// Package linstor follows a LINSTOR controller and keeps the state that it reports of every resource.
//
// No other package speaks to LINSTOR, and only its package client knows the wire. A [Feed] follows the promotion events. One loop reads by
// REST what an event hints at, what is polled, and the lists that are read by the clock. A [Store] holds the outcome, and since when each
// fact has held. Events are hints: only a REST read makes the store true. [Feed.Refresh] is the live read that precedes a deletion.
//
// LINSTOR omits what it does not know. Every fact here is therefore true, false or unknown: a value that is absent on the wire is unknown,
// and neither false nor 0.
package linstor
