package linstor

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// maxReasons is how many reasons of an outage are logged: LINSTOR could answer something else each time.
const maxReasons = 10

// Status is the state of the connection to LINSTOR.
type Status struct {
	// Connected is set while the event stream stands: LINSTOR has answered on it, or everything could be
	// read by REST since its request was sent (an idle LINSTOR answers with the first event only).
	Connected bool
	// Synced is set when everything has been read since the event stream was opened.
	Synced bool
	// SyncedSince is since when LINSTOR has been followed without an outage; zero before everything was read, and during an outage. That the stream is
	// opened again is no outage if LINSTOR answers at once.
	SyncedSince time.Time
	// Refused is LINSTOR's answer if it takes this process for somebody who may not read, with what to check; empty if it does not.
	Refused string
	// LastConfirmed is the start of the newest successful REST read, or the arrival of the newest event if
	// that was later; zero when LINSTOR never answered.
	LastConfirmed time.Time
}

// Status returns the feed's state.
func (f *Feed) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// confirmed notes a successful read that began at the given time.
func (f *Feed) confirmed(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at.After(f.status.LastConfirmed) {
		f.status.LastConfirmed = at
	}
}

// connected notes that the stream stands.
func (f *Feed) connected() {
	f.mu.Lock()
	was := f.status.Connected
	f.status.Connected, f.status.Refused, f.outage = true, "", nil
	f.mu.Unlock()
	if was {
		return
	}
	f.metrics.connected.Set(1)
	base, _ := f.client.Endpoint()
	f.log.Info("Following LINSTOR's promotion events", "controller", base.Host)
}

// opened notes that a stream was opened after there was none, and has everything read.
func (f *Feed) opened(at time.Time) {
	f.store.hears(at)
	f.schedule.ask(listResync)
}

// synced notes that everything has been read since then.
func (f *Feed) synced(since time.Time) {
	if !f.store.follows(since) {
		return
	}
	f.connected()
	f.mu.Lock()
	if f.status.SyncedSince.IsZero() {
		f.status.SyncedSince = time.Now()
	}
	f.status.Synced = true
	waiting := f.early
	f.early = nil
	f.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	f.schedule.answered()
	for _, event := range waiting {
		f.hear(event.Event, event.at)
	}
}

// refusal is why LINSTOR refuses to be read.
type refusal struct{ err error }

// failed logs a failure. If LINSTOR refuses to be read, the stream ends, which it would not by itself: its token was good when it was opened.
func (f *Feed) failed(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	f.log.V(1).Info("A request to LINSTOR failed", "reason", err.Error())
	if client.IsUnauthorized(err) {
		select {
		case f.refused <- refusal{err}:
		default:
		}
	}
}

// lost notes that the connection has ended, or could not be made. Each reason is logged once in an outage: the stream often
// ends before the reason shows.
func (f *Feed) lost(err error) {
	reason := reconnectLost
	switch {
	case errors.Is(err, errStreamDead):
		reason = reconnectDead
	case errors.Is(err, errEndpointMoved):
		reason = reconnectMoved
	}
	f.metrics.reconnects.WithLabelValues(reason).Inc()
	f.failed(err)
	f.disconnected()

	text := client.OneLine(err.Error())
	if client.IsUnauthorized(err) {
		f.mu.Lock()
		f.status.Refused = text
		f.mu.Unlock()
	}
	if f.newReason(text) {
		f.log.Info("No promotion events from LINSTOR, connecting again until it answers", "reason", text)
	}
}

var digits = regexp.MustCompile("[0-9]+")

// newReason reports whether an outage has not had this reason so far. Ports and times in it do not count.
func (f *Feed) newReason(text string) bool {
	text = digits.ReplaceAllString(text, "")
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.outage, text) || len(f.outage) == maxReasons {
		return false
	}
	f.outage = append(f.outage, text)
	return true
}

func (f *Feed) disconnected() {
	f.store.deafens()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.Connected, f.status.Synced, f.early = false, false, nil
	f.metrics.connected.Set(0)
}

// away notes that LINSTOR does not answer.
func (f *Feed) away() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.SyncedSince = time.Time{}
}
