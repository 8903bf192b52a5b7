package options

import (
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
)

// table returns a row for each option of o: name, field, default, usage and rules. Parse and Default, --help, the schema of the chart and
// docs/configuration.md come from it.
func (o *Options) table() []option {
	return []option{
		row("attacher-name", &o.AttacherName, "linstor.csi.linbit.com",
			"name of the CSI driver whose volumes are looked after", driverName),
		row("pod-label-selector", &o.PodLabelSelector, "linstor.csi.linbit.com/on-storage-lost=remove",
			"label selector of the pods that may be removed", selector),
		row("recover-pod-selector", &o.RecoverPodSelector, "",
			"label selector of LINSTOR's own pods, which are deleted if they are lost with their node, the LINSTOR controller's also if LINSTOR is blind; "+
				"none if empty; the manifest selects those of the Piraeus Operator", ifGiven(selector)),

		row("confirmed-loss-grace-period", &o.ConfirmedLossGracePeriod, 5*time.Second,
			"how long a loss must last that all other replicas confirm", notNegative),
		row("unanimous-loss-grace-period", &o.UnanimousLossGracePeriod, time.Second,
			"how long a loss must last on which DRBD, LINSTOR and Kubernetes agree; off if it is not shorter than "+
				"--confirmed-loss-grace-period, or without --leader-election", notNegative),
		row("known-resource-grace-period", &o.KnownResourceGracePeriod, 45*time.Second,
			"how long any other loss must last", notNegative),
		row("new-resource-grace-period", &o.NewResourceGracePeriod, 45*time.Second,
			"how long a loss must last while the pod or the resource is younger than this", notNegative),
		row("kubelet-silence", &o.KubeletSilence, 20*time.Second,
			"how long a kubelet must not have renewed its Lease to count as silent, at least "+MinKubeletSilence.String()+
				"; longer if it renews more rarely than every 10s",
			atLeast(MinKubeletSilence, ", because a kubelet renews its Lease every 10s and a shorter silence means nothing")),
		row("reconcile-interval", &o.ReconcileInterval, 10*time.Second,
			"how often a volume that is lost but cannot be moved is checked again", positive),
		row("resync-interval", &o.ResyncInterval, 10*time.Minute,
			"how often everything known of LINSTOR is read again", positive),
		row("operations-timeout", &o.OperationsTimeout, 30*time.Second,
			"deadline of one reconcile, of each write of a fail-over, and of each request to LINSTOR; the next reconcile does the rest", positive),

		row("max-lost-nodes", &o.MaxLostNodes, "50%",
			"how many nodes, or what percentage of them, may be newly lost before nothing is removed; nodes that were lost long ago do not count", limit),
		row("pause-deployment", &o.PauseDeployment, "",
			"Deployment, in the namespace of the leader election, whose annotation drbd.linbit.com/pause-fail-over pauses all fail-over; if empty, "+
				"the one that owns the controller's pod (POD_NAME and POD_NAMESPACE)", ifGiven(objectName)),
		repeated("shutdown-taint", &o.ShutdownTaints, ShutdownTaint,
			"key of a further taint that says that a node is shut down, beside "+ShutdownTaint+"; may be repeated", taintKey),
		row("fail-over-unsafe-pods", &o.FailOverUnsafePods, false,
			"remove also pods with volumes that may not be available elsewhere, such as hostPath"),
		row("grace-period-seconds", &o.GracePeriodSeconds, 10,
			"termination grace in seconds of pods on a node that may still be alive",
			atLeast(int64(1), ", because 0 makes Kubernetes forget a pod that may still run")),
		row("fast-detach", &o.FastDetach, true,
			"make Kubernetes detach at once by removing the volume from the volumesInUse of the lost node; without, it takes up to a minute"),
		row("disable-node-taints", &o.DisableNodeTaints, false,
			"do not taint nodes that lost their storage"),
		row("dry-run", &o.DryRun, false,
			"only say what would be done, in the log, in Events, in metrics, and in the conditions of nodes that are evacuated"),

		row("evacuation", &o.Evacuation, true,
			"evacuate nodes that have the taint "+evacuation.TaintKey+", and take that back when it goes; without, the taint means nothing"),
		row("max-concurrent-evacuations", &o.MaxConcurrentEvacuations, 1,
			"how many nodes are copied from, or leave, at a time; the others wait in the order in which they were tainted",
			atLeast(1, "; --evacuation=false evacuates none")),
		row("max-concurrent-copies", &o.MaxConcurrentCopies, 4,
			"how many copies for nodes that are evacuated may be in progress in the cluster", atLeast(1, "")),

		row("concurrency", &o.Concurrency, 100,
			"how many nodes are reconciled at the same time, each with all its lost volumes", atLeast(1, "")),
		row("metrics-bind-address", &o.MetricsBindAddress, ":8443",
			"address of the metrics server, or 0 to switch it off", metricsAddress),
		row("metrics-secure", &o.MetricsSecure, true,
			"serve metrics with HTTPS and only to clients that Kubernetes authorizes for /metrics; without, everybody who reaches "+
				"--metrics-bind-address may read them"),
		row("pprof-bind-address", &o.PprofBindAddress, "",
			"address of Go's profiler, of this host only; off if not given", ifGiven(addressOfThisHost)),

		// client-go's elector refuses to start unless these three fit together, but names no option.
		row("leader-elect-lease-duration", &o.LeaseDuration, 10*time.Second,
			"how long to wait for a leader that stopped renewing", func(d time.Duration) string {
				return unless(d > o.RenewDeadline, "must be greater than --leader-elect-renew-deadline, which is %s", o.RenewDeadline)
			}),
		row("leader-elect-renew-deadline", &o.RenewDeadline, 5*time.Second,
			"how long the leader tries to renew before it gives up", func(d time.Duration) string {
				return unless(d > time.Duration(leaderelection.JitterFactor*float64(o.RetryPeriod)),
					"must be greater than %g times --leader-elect-retry-period, which is %s", leaderelection.JitterFactor, o.RetryPeriod)
			}),
		row("leader-elect-retry-period", &o.RetryPeriod, 2*time.Second,
			"time between two tries to get or renew the Lease", positive),
		row("leader-election", &o.LeaderElection, false,
			"elect a leader; needed if several replicas run, and set by the manifest").notForChart(),
		row("leader-election-healtz-port", &o.LeaderElectionHealthzPort, 8080,
			"port of /healthz and /readyz", port).notForChart(),
		row("leader-election-lease-name", &o.LeaderElectionLeaseName, "",
			"name of this replica in the election, part of its identity; the host name if not given", func(name string) string {
				return unless(name != "" || !o.LeaderElection, "must be given, because the host has no name")
			}).notForChart(),
		row("leader-election-resource-name", &o.LeaderElectionResourceName, "piraeus-ha-controller",
			"name of the Lease that the replicas compete for", objectName).notForChart(),
		row("leader-election-namespace", &o.LeaderElectionNamespace, "",
			"namespace of the Lease; the namespace of the pod if not given", ifGiven(namespace)).notForChart(),
		row("kubeconfig", &o.Kubeconfig, "",
			"path of a kubeconfig file; only needed outside of a cluster").notForChart(),

		custom("v", verbosity{o},
			"verbosity of the log, a number: 0 shows decisions and actions, more shows details; short for --zap-log-level"),
		row("version", &o.Version, false,
			"print the version and exit").notForChart(),
	}
}
