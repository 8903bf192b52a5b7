package scenarios_test

import (
	"net/http"
	"slices"
	"strings"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// runsOnSuspended looks at the console of a node that nobody hears.
func runsOnSuspended(d *drill) {
	d.T.Helper()
	state, _ := d.DRBD.Replica(d.resource, d.node)
	if d.Node(d.node).BootID() != d.bootID || state.Open == 0 {
		d.T.Errorf("the process of the old pod does not run on: the volume is open %d times", state.Open)
	}
	status, err := d.show(d.fill("drbdsetup status RESOURCE"))
	d.Must(err)
	if !suspended(status) {
		d.T.Errorf("the writes of the old pod are not suspended:\n%s", status)
	}
}

// logsOfAll looks for the pods of which the logs are asked: no kubelet of the bed serves logs.
func logsOfAll(d *drill, command string) {
	d.T.Helper()
	pods, _, _ := strings.Cut(strings.Replace(command, " logs ", " get pods ", 1), " --prefix")
	shows(func(_ *drill, shown string) bool { return strings.Count(shown, bed.ControllerName+"-") == 3 })(d, pods)
}

// tellsTheSeconds is expected of the Events after the fail-over.
func tellsTheSeconds(_ *drill, shown string) bool {
	return strings.Contains(shown, "drbd.linbit.com/seconds") && strings.Contains(shown, "total")
}

// actedInOrder tells whether the controller has acted as the page says, in its order: taint, mark, deletion, release.
func (d *drill) actedInOrder() bool {
	d.T.Helper()
	var acts []string
	for _, r := range d.ControllerRequests() {
		if act := r.Verb + " " + r.Resource; r.Code < http.StatusMultipleChoices && !slices.Contains(acts, act) {
			acts = append(acts, act)
		}
	}
	at := -1
	for _, act := range []string{"patch nodes", "patch " + attachmentsOfStorage, "delete pods", "patch nodes/status"} {
		i := slices.Index(acts, act)
		if i <= at {
			return false
		}
		at = i
	}
	return true
}
