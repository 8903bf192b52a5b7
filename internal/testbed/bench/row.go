package bench

import (
	"context"
	"io"
)

// Row is a line of the table.
type Row struct {
	// Key selects the row on the command line.
	Key string
	// Scenario and Target are the customer's words.
	Scenario, Target string
}

// The rows, in the order of the table.
var (
	rowCrash         = Row{"crash", "one pod, node crash", "crash → Running ≤ 12.5 s median, ≤ 14.5 s worst"}
	rowSteps         = Row{"steps", "where the time of one pod, node crash, goes", "shown, step by step, against the physical limit"}
	rowNoGrace       = Row{"nograce", "the same, confirmed grace 0s", "≤ 12 s where the Lease is already silent for 12 s, else ≤ 14.5 s"}
	rowAttach        = Row{"attach", "pod object gone → attachment on the new node attached", "≤ 1.5 s p99"}
	rowCut           = Row{"cut", "DRBD network cut, node otherwise alive", "survivor promotable → Running ≤ grace + 10 s deletion grace + 2 s, never back on that node"}
	rowMeasuredCrash = Row{"measured", "one pod, node crash, DRBD as measured: each end of a link notices after 6.3 to 11.3 s", "shown"}
	rowMeasuredCut   = Row{"measured-cut", "DRBD network cut, DRBD as measured: the Primary may notice seconds after its peers", "never back on that node"}
	rowNotice        = Row{"notice", "one pod, node crash, DRBD noticing after 3 s and 6 s", "shown, beside the 10 s of the other rows"}
	rowFreeze        = Row{"freeze", "the node of a pod is frozen and thawed, DRBD as measured", "nothing removed for 6 s or less; how often it moves for 10 s and 13 s shown"}
	rowHarmless      = Row{"harmless", "disturbances that must move nothing, DRBD as measured", "nothing removed"}
	rowMass          = Row{"mass", "110 pods on the crashed node, attacher and controller-manager with `--kube-api-qps=200 --kube-api-burst=400`", "last Running ≤ 1.2 × the same loss handled by hand; each write ≤ 2 s after its look; none on the dead node"}
	rowStock         = Row{"stock", "the same with stock attacher and controller-manager flags", "last Running ≤ 1.05 × the same loss handled by hand"}
	rowThousand      = Row{"thousand", "1,000 pods on 10 of 40 nodes", "last Running ≤ 1.5 × the same loss handled by hand; each write ≤ 2 s after its look; none on a dead node"}
	rowLeader        = Row{"leader", "the leader's node crashes as well", "crash → Running ≤ 14 s median, ≤ 17 s worst"}
	rowPair          = Row{"pair", "two nodes crash at once, and the other one has trouble", "shown, beside a node that crashes alone"}
	rowIdle          = Row{"idle", "10,000 volumes × 3 replicas, 5,000 selected and 20,000 other pods, idle", "per process RSS ≤ 200 MiB, CPU ≤ 1.5 % of a core; per Deployment ≤ 60 LINSTOR requests and 20 MB of its answers a minute"}
	rowManaged       = Row{"managed", "that state, with every pod selected (component `manage-all-pods`)", "shown"}
	rowStorm         = Row{"storm", "2,000 promotion events in a second on that state", "event → decision p99 ≤ 100 ms; the stream never stalls"}
	rowRestart       = Row{"restart", "restart of the process on that state", "ready ≤ 10 s; LINSTOR asked for one view"}
)

// Rows returns all rows in the order of the table.
func Rows() []Row {
	return []Row{
		rowCrash, rowSteps, rowNoGrace, rowNotice, rowMeasuredCrash, rowAttach, rowCut, rowMeasuredCut, rowFreeze, rowHarmless,
		rowMass, rowStock, rowThousand, rowLeader, rowPair, rowIdle, rowManaged, rowStorm, rowRestart,
	}
}

// Results are what was measured, by the key of the row.
type Results map[string][]Measure

// Settings say how much is measured.
type Settings struct {
	// Runs is how often a single loss is played; each variant of a row as often.
	Runs int
	// MassRuns is how often the loss of 110 pods is played, and handled by hand; the further baselines a third as often.
	// MassStockRuns is the same with stock flags.
	MassRuns, MassStockRuns int
	// Attachments is how many single losses the attachments of which are timed.
	Attachments int
	// Parallel is how many beds may run at the same time where they hardly use the processor.
	Parallel int
	// ProfileDir takes profiles of the controller under a storm and while it is idle; none are taken if empty.
	ProfileDir string
	// Log is told what goes on.
	Log io.Writer
}

// Group measures rows that share a cluster.
type Group struct {
	// Name of the group, for the log.
	Name string
	// Rows are the keys of the rows that need the group.
	Rows []string
	// Calm groups mostly wait: several may run at the same time without disturbing each other.
	Calm bool

	run func(ctx context.Context, s Settings) (Results, error)
}
