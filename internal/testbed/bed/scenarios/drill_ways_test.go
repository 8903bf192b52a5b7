package scenarios_test

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// Chapters of the page, and what it says where one has no table of its own.
const (
	drillBefore = "Before"
	drillAfter  = "After"
	drillSame   = "From outside it is the same as a power off, second by second."
)

// drillSecond is when something is seen, in the first column of a table.
var drillSecond = regexp.MustCompile(`^(?:(?:about |up to )?(?:[0-9.]+ to )?([0-9.]+)( later| in all)?|at once)$`)

// drillStep is a command of the page.
type drillStep struct {
	// command is the page's, word for word.
	command string
	// play runs the command, with its placeholders filled in, or does on the bed what it does on a machine.
	play func(d *drill, command string)
}

// sight is a row of a table of the page.
type sight struct {
	// what and where are its last two columns, word for word.
	what, where string
	// seen tells whether it is so now. The commands in where have shown what is given.
	seen func(d *drill, shown []string) bool
}

// drillWay is a way to lose a node.
type drillWay struct {
	title                 string
	lose, meanwhile, back []drillStep
	sights                []sight
	// console looks at what only the console of the lost node tells; nil where there is nothing.
	console func(d *drill)
}

const (
	inController  = "kubectl -n ha-controller exec deploy/piraeus-ha-controller -- /piraeus-ha-controller "
	getTaints     = "kubectl get node NODE -o jsonpath='{.spec.taints}'"
	waitForNode   = "kubectl wait --for=condition=Ready node/NODE --timeout=10m"
	listResources = "linstor resource list -r RESOURCE"
	endCut        = "nft delete table inet drill"
)

var beforeDrill = []drillStep{
	{"kubectl -n NAMESPACE get pod POD -o wide", shows(func(d *drill, shown string) bool { return strings.Contains(shown, d.node) })},
	{inController + "check --node NODE", shows(func(d *drill, shown string) bool {
		return slices.ContainsFunc(linesWith(shown, d.Name+"/"+d.pod.Name), func(line []string) bool { return line[1] == "moves" })
	})},
	{"kubectl get pods -A -l linstor.csi.linbit.com/on-storage-lost=remove -o wide --watch --output-watch-events", func(d *drill, command string) {
		d.pods = d.open(command, d.Name)
	}},
	{"kubectl get events -A --field-selector reportingComponent=piraeus-ha-controller --watch", func(d *drill, command string) {
		d.events = d.open(command, d.node)
	}},
	{"kubectl get volumeattachments --watch --output-watch-events", func(d *drill, command string) { d.attachments = d.open(command, d.resource) }},
	{"kubectl -n ha-controller logs -l app.kubernetes.io/name=piraeus-ha-controller --prefix --follow --tail=1", logsOfAll},
	{"watch -n1 " + listResources, func(d *drill, command string) { shows(connected)(d, strings.TrimPrefix(command, "watch -n1 ")) }},
}

var afterDrill = []drillStep{
	{inController + "check", shows(func(d *drill, shown string) bool {
		return slices.ContainsFunc(linesWith(shown, d.Name+"/"+d.pod.Name), func(line []string) bool { return slices.Contains(line, "Protected") })
	})},
	{getTaints, shows(func(_ *drill, shown string) bool { return strings.TrimSpace(shown) == "" })},
	{"kubectl get volumeattachments", shows(func(d *drill, shown string) bool {
		lines := linesWith(shown, d.resource)
		return len(lines) == 1 && slices.Contains(lines[0], "true") && !slices.Contains(lines[0], d.node)
	})},
}

var drillWays = []drillWay{
	{
		title:  "Power off",
		lose:   []drillStep{{"sync; echo o > /proc/sysrq-trigger", func(d *drill, _ string) { d.lose(d.Crash) }}},
		sights: powerOffSights,
		meanwhile: []drillStep{{
			"kubectl get events -n NAMESPACE --field-selector reportingComponent=piraeus-ha-controller,reason=FailedOver -o jsonpath='{.items[*].metadata.annotations}'",
			shows(tellsTheSeconds),
		}},
		back: []drillStep{
			{waitForNode, func(d *drill, command string) {
				d.Return(d.node) // "Switch the node on."
				shows(anything)(d, command)
			}},
			{listResources, shows(connected)},
		},
	},
	{
		title: "Cut DRBD's ports",
		// The bed has no packet filter: what these do together is done by the last.
		lose: slices.Concat(drillTable, []drillStep{
			{"nft add chain inet drill in '{ type filter hook input priority -300; }'", onlyTogether},
			{"nft add chain inet drill out '{ type filter hook output priority -300; }'", onlyTogether},
			{"nft add rule inet drill in tcp dport 7000-7999 drop", onlyTogether},
			{"nft add rule inet drill in tcp sport 7000-7999 drop", onlyTogether},
			{"nft add rule inet drill out tcp dport 7000-7999 drop", onlyTogether},
			{"nft add rule inet drill out tcp sport 7000-7999 drop", func(d *drill, _ string) { d.lose(d.IsolateDRBD) }},
		}),
		sights: cutPortsSights,
		back: []drillStep{
			{endCut, func(d *drill, _ string) { d.RejoinDRBD(d.node) }},
			{listResources, shows(connected)},
			{getTaints, shows(func(_ *drill, shown string) bool { return !strings.Contains(shown, taintLostQuorum) })},
		},
	},
	{
		title: "Cut everything",
		lose: slices.Concat(drillTable, []drillStep{
			{"nft add chain inet drill in '{ type filter hook input priority -300; }'", onlyTogether},
			{"nft add chain inet drill out '{ type filter hook output priority -300; }'", onlyTogether},
			{"nft add chain inet drill through '{ type filter hook forward priority -300; }'", onlyTogether},
			{"nft add rule inet drill in iifname != lo drop", onlyTogether},
			{"nft add rule inet drill out oifname != lo drop", onlyTogether},
			{"nft add rule inet drill through drop", func(d *drill, _ string) { d.lose(d.Isolate) }},
		}),
		sights:  powerOffSights,
		console: runsOnSuspended,
		back: []drillStep{
			{endCut, func(d *drill, _ string) { d.Rejoin(d.node) }},
			{waitForNode, shows(anything)},
			{listResources, shows(connected)},
		},
	},
}

// drillTable begins a cut, with its end.
var drillTable = []drillStep{
	{"systemd-run --on-active=10min " + endCut, onlyTogether},
	{"nft add table inet drill", onlyTogether},
}

// drillTold are the commands that the page only speaks of.
var drillTold = []string{
	"kubectl -n piraeus-datastore exec deploy/linstor-controller -- linstor", "check --node", "ipmitool chassis power off", "virsh destroy",
	"linstor controller list-properties", "kubectl drain NODE", "systemctl poweroff", "systemctl stop kubelet",
	"linstor resource-definition set-property … quorum off", "drbdadm primary --force", "drbdadm -- --overwrite-data-of-peer",
	"linstor node lost NODE", "kubectl delete pod POD --force", "drbdsetup status",
}

var powerOffSights = []sight{
	{
		"The node is gone. Kubernetes calls it Ready for up to 50 seconds more.", "`kubectl get node NODE`",
		func(_ *drill, shown []string) bool { return slices.Contains(strings.Fields(shown[0]), "Ready") },
	},
	{
		"LINSTOR misses the satellite.", "`linstor node list`: OFFLINE",
		func(d *drill, shown []string) bool { return slices.Contains(linesWith(shown[0], d.node)[0], "OFFLINE") },
	},
	{
		"Each DRBD that was connected notices, at its own time. With the last one, another replica may be promoted, and the grace begins.",
		"`linstor resource list`: Connecting(NODE)",
		func(d *drill, shown []string) bool {
			return slices.ContainsFunc(linesWith(shown[0], d.Nodes[1]), func(line []string) bool {
				return slices.Contains(line, d.resource) && slices.Contains(line, "Connecting("+d.node+")")
			})
		},
	},
	{
		"The controller has decided: it taints the node, marks the attachment, deletes the pod without grace, releases the volume.",
		"Events `NodeStorageQuorumLost`, `ForceDeleted`; `" + getTaints + "`",
		func(d *drill, shown []string) bool {
			return strings.Contains(shown[0], taintLostQuorum) && slices.Equal(gracesGiven(d.Scenario), []int64{0}) && d.actedInOrder()
		},
	},
	{
		"The pod's owner creates another, and Kubernetes places it.", "the pods, on another node",
		func(d *drill, _ []string) bool { return d.pods.told(with("DELETED", d.node), d.elsewhere()) },
	},
	{
		"The attachment to the node is gone, and there is one to the new node.", "the attachments; Events `ForceDetached`, `FailedOver`",
		func(d *drill, _ []string) bool { return d.attachedElsewhere() },
	},
	{
		"The pod runs, where its image is there and it starts fast.", "the pods: Running",
		func(d *drill, _ []string) bool { return d.runsElsewhere() },
	},
	{
		"Kubernetes calls the node NotReady, and its own taint takes the place of the controller's.", "`kubectl get node NODE`",
		func(d *drill, shown []string) bool {
			own := func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable }
			return slices.Contains(strings.Fields(shown[0]), "NotReady") && !keptAway(d.Scenario, d.node) &&
				slices.ContainsFunc(nodeOf(d.Scenario, d.node).Spec.Taints, own)
		},
	},
}

var cutPortsSights = []sight{
	{
		"Nothing yet: writes to the volume wait for the peers.", "",
		func(d *drill, _ []string) bool {
			state, _ := d.DRBD.Replica(d.resource, d.node)
			return state.IO == drbd.IONormal && !keptAway(d.Scenario, d.node)
		},
	},
	{
		"Both ends notice, seconds apart. The Primary loses quorum, and suspends its reads and writes.",
		"on NODE, `drbdsetup status RESOURCE`: quorum:no, suspended:quorum",
		func(_ *drill, shown []string) bool { return suspended(shown[0]) },
	},
	{
		"The controller deletes the pod with a grace of 10 seconds, because a living node can end it. New pods are kept away.",
		"Events `NodeStorageQuorumLost`, `ForceDeleted`; the pod is Terminating",
		func(d *drill, _ []string) bool {
			graces := gracesGiven(d.Scenario)
			return keptAway(d.Scenario, d.node) && len(graces) > 0 && graces[0] == 10 && d.pods.told(with("Terminating", d.node))
		},
	},
	{
		"The process ends, or is given up, and the volume is detached and attached elsewhere.", "the pods, the attachments; Event `FailedOver`",
		func(d *drill, _ []string) bool {
			return d.pods.told(with("DELETED", d.node), d.elsewhere()) && d.attachedElsewhere()
		},
	},
	{
		"The pod runs elsewhere.", "the pods: Running",
		func(d *drill, _ []string) bool { return d.runsElsewhere() },
	},
}
