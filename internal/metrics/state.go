package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// Protection is what the loss of its node would mean for a selected pod, or that it uses no volume of ours.
type Protection string

// NoVolume is the protection of a selected pod without a volume of the driver. All others are those of [failover.Outlook].
const NoVolume Protection = "NoVolume"

// protections are all of them.
var protections = []Protection{
	Protection(failover.Protected), Protection(failover.Unprotected), Protection(failover.Failing), Protection(failover.Starting),
	Protection(failover.Untold), NoVolume,
}

// verdicts are those of the policy.
var verdicts = []failover.Verdict{failover.NotLost, failover.Undecided, failover.Pending, failover.Blocked, failover.Lost}

// Taint is a taint of ours, by the last part of its key.
type Taint string

const (
	// LostQuorum keeps pods away from a node that has lost its storage.
	LostQuorum Taint = "lost-quorum"
	// NodeSilent keeps LINSTOR's own pods away from a node whose kubelet is silent.
	NodeSilent Taint = "node-silent"
)

// state shows what is so at the moment. What only the leader knows is 0 on the other replicas, so that the greatest value counts.
type state struct {
	volumes, blocked, protection, unprotected, tainted *prometheus.GaugeVec

	agents, silent, paused, dryRun, guard, permissions, blind prometheus.Gauge
}

// ofLeader ends the help of what other replicas show as 0.
const ofLeader = "known to the leader only."

func newState() state {
	s := state{
		volumes: gauges("volumes", "Volumes on the nodes that use them, by verdict of the newest decision; "+ofLeader, "verdict"),
		blocked: gauges("blocked_volumes",
			"Volumes on nodes where they are lost, or have seemed so for 30 s, and are not moved, by the reason; "+ofLeader, "reason"),
		protection: gauges("pods", "Selected pods, by what the loss of their node would mean for them now; "+ofLeader, "protection"),
		unprotected: gauges("unprotected_pods", "Selected pods, and KubeVirt's helpers of such, that would not be moved if their node were "+
			"lost now, each under the first reason; "+ofLeader, "reason"),
		tainted: gauges("tainted_nodes", "Nodes with a taint of the controller's, by the taint; "+ofLeader, "taint"),
		agents: gauge("node_agents", "Node agents of 1.x that run, which do the same work in another way; while there is one, this "+
			"controller only observes; "+ofLeader),
		silent: gauge("silent_kubelets", "Kubelets that have not renewed their Lease for --kubelet-silence; none while most seem silent; "+
			ofLeader),
		paused: gauge("paused", "1 while all fail-over is paused, or it cannot be read whether it is; "+ofLeader),
		dryRun: gauge("dry_run", "1 where --dry-run makes the controller only say what it would do."),
		guard:  gauge("guard_tripped", "1 while so much of the cluster seems lost at once that nothing is removed, else 0."),
		permissions: gauge("missing_permissions",
			"Permissions that the controller lacks, which it asks for at its start until it has all; NaN while that is unknown."),
		blind: gauge("linstor_blind_nodes", "Nodes that LINSTOR calls ONLINE without a connection to them, as far as a silent kubelet has "+
			"led to the question; nothing is done by its words on them."),
	}
	set(s.volumes, verdicts, nil)
	set(s.blocked, failover.Reasons(), nil)
	set(s.protection, protections, nil)
	set(s.unprotected, failover.Hindrances(), nil)
	set(s.tainted, []Taint{LostQuorum, NodeSilent}, nil)
	return s
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
}

func gauges(name, help, label string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, []string{label})
}

// set shows how many there are of each of all known values; one that is not counted has none.
func set[V ~string](shown *prometheus.GaugeVec, known []V, counts map[V]int) {
	for _, value := range known {
		shown.WithLabelValues(string(value)).Set(float64(counts[value]))
	}
}

func (s state) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		s.volumes, s.blocked, s.protection, s.unprotected, s.tainted, s.agents, s.silent, s.paused, s.dryRun, s.guard,
		s.permissions, s.blind,
	}
}

// Volumes shows how many volumes have which verdict on the nodes that use them.
func (m *Metrics) Volumes(counts map[failover.Verdict]int) { set(m.state.volumes, verdicts, counts) }

// BlockedNow shows how many volumes are lost, or have seemed so for long, and are not moved, for which reason.
func (m *Metrics) BlockedNow(counts map[failover.Reason]int) {
	set(m.state.blocked, failover.Reasons(), counts)
}

// Protected shows how many selected pods have which protection.
func (m *Metrics) Protected(counts map[Protection]int) { set(m.state.protection, protections, counts) }

// Unprotected shows how many pods are unprotected for which reason.
func (m *Metrics) Unprotected(counts map[failover.Reason]int) {
	set(m.state.unprotected, failover.Hindrances(), counts)
}

// Tainted shows how many nodes have which taint of ours.
func (m *Metrics) Tainted(counts map[Taint]int) {
	set(m.state.tainted, []Taint{LostQuorum, NodeSilent}, counts)
}

// NodeAgents shows how many node agents of 1.x run.
func (m *Metrics) NodeAgents(pods int) { m.state.agents.Set(float64(pods)) }

// SilentKubelets shows how many kubelets are silent.
func (m *Metrics) SilentKubelets(nodes int) { m.state.silent.Set(float64(nodes)) }

// Paused shows whether all fail-over is paused.
func (m *Metrics) Paused(paused bool) { show(m.state.paused, paused) }

// DryRun shows whether the controller only says what it would do.
func (m *Metrics) DryRun(dry bool) { show(m.state.dryRun, dry) }

// Guard shows whether the guard is closed.
func (m *Metrics) Guard(closed bool) { show(m.state.guard, closed) }

// Blind shows for how many nodes LINSTOR is blind.
func (m *Metrics) Blind(nodes int) { m.state.blind.Set(float64(nodes)) }

// MissingPermissions shows how many permissions the controller lacked when it asked last; NaN while that is unknown.
func (m *Metrics) MissingPermissions(n float64) { m.state.permissions.Set(n) }

func show(g prometheus.Gauge, on bool) {
	if on {
		g.Set(1)
	} else {
		g.Set(0)
	}
}
