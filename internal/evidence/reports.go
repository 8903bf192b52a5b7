package evidence

import (
	"slices"
	"strings"
)

// Report is an error report of a satellite.
type Report struct {
	// ID is its file's name: "ErrorReport-PROCESS-NODE-NUMBER.log".
	ID string
	// Exception and Message are what went wrong.
	Exception, Message string
}

// Reports are the error reports of one satellite, as they were read. Nil is never read.
type Reports struct {
	// asked is the start of the newest reading that counts, and list what it showed, the newest last.
	asked Moment
	list  []Report
	// known is the start of the first reading that showed a report, by its ID.
	known map[string]Moment
}

// With returns the reports after a reading that began at start. The satellite must have been ONLINE in lists of nodes that began before it and after it ended:
// LINSTOR answers for one that it does not reach that it has none.
func (r *Reports) With(list []Report, start Moment) *Reports {
	next := &Reports{asked: start, list: list, known: make(map[string]Moment, len(list))}
	for _, one := range list {
		next.known[one.ID] = start
		if r != nil && r.known[one.ID] != 0 {
			next.known[one.ID] = r.known[one.ID]
		}
	}
	return next
}

// clear tells whether a reading that began after one moment shows that nothing of R has failed since another: no report is new that tells of a failed adjust
// of R, or of a failed storage command. Since ever, which is 0, only those count that name R. What an older process of the satellite has reported does not.
func (r *Reports) clear(resource string, since, after Moment) bool {
	if r == nil || r.asked < after {
		return false
	}
	if len(r.list) == 0 {
		return true
	}
	present := process(r.list[len(r.list)-1].ID)
	return !slices.ContainsFunc(r.list, func(one Report) bool {
		isNew := since == 0 || r.known[one.ID] >= since
		return isNew && process(one.ID) == present && (one.names(resource) || since != 0 && one.isOfStorage())
	})
}

// process is the part of an ID that changes with each start of the satellite.
func process(id string) string {
	process, _, _ := strings.Cut(strings.TrimPrefix(id, "ErrorReport-"), "-")
	return process
}

// names tells whether a report tells of R.
func (r Report) names(resource string) bool {
	words := strings.FieldsFunc(strings.ToLower(r.Message), func(c rune) bool { return strings.ContainsRune(" '\"`,;:()/", c) })
	return slices.Contains(words, strings.ToLower(resource))
}

// isOfStorage tells whether a report tells of a failed storage command, which may have kept the satellite from adjusting anything.
func (r Report) isOfStorage() bool {
	text := strings.ToLower(r.Exception + " " + r.Message)
	return slices.ContainsFunc([]string{"storage", "command", "extcmd", "childprocess", "timeout", "timed out"},
		func(word string) bool { return strings.Contains(text, word) })
}
