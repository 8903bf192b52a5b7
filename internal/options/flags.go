package options

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap/zapcore"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
)

// Flag describes one option of the command line for people.
type Flag struct {
	// Name is the name of the option, without dashes.
	Name string
	// Default is its default as it would be written on the command line, empty if there is none.
	Default string
	// Usage says in one sentence what it does.
	Usage string
}

// Flags returns every option, sorted by name.
func Flags() []Flag {
	o := Default()
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	o.addFlags(fs)

	var all []Flag

	fs.VisitAll(func(f *flag.Flag) {
		all = append(all, Flag{Name: f.Name, Default: f.DefValue, Usage: f.Usage})
	})

	return all
}

// Usage writes what --help shows.
func Usage(w io.Writer) error {
	var b strings.Builder

	b.WriteString("Moves workloads off nodes that lost their LINSTOR storage.\n\n" +
		"Usage: piraeus-ha-controller [--option=value ...]\n" +
		"       piraeus-ha-controller check [--help]    tells what would survive the loss of its node now\n" +
		"       piraeus-ha-controller version           prints the version\n" +
		"       piraeus-ha-controller help [check]      prints this, or about the check\n\n" +
		"LINSTOR is found by the environment variables LS_CONTROLLERS, LS_USER_CERTIFICATE and so on.\n\nOptions:\n")

	for _, f := range Flags() {
		b.WriteString("  --" + f.Name)

		if f.Default != "" {
			b.WriteString("=" + f.Default)
		}

		b.WriteString("\n        " + f.Usage + "\n")
	}

	_, err := io.WriteString(w, b.String())

	return err
}

// addFlags binds every option to fs, with the current values as defaults.
func (o *Options) addFlags(fs *flag.FlagSet) {
	o.addDecisionFlags(fs)
	o.addActionFlags(fs)
	o.addLeaderElectionFlags(fs)

	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"path of a kubeconfig file; only needed outside of a cluster")
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress,
		"address of the metrics server, or 0 to switch it off")
	fs.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure,
		"serve metrics by HTTPS and only to clients that Kubernetes authorizes for /metrics; without, everybody "+
			"who reaches --metrics-bind-address may read them")
	fs.StringVar(&o.PprofBindAddress, "pprof-bind-address", o.PprofBindAddress,
		"address of Go's profiler, of this host only; off if not given")
	fs.IntVar(&o.Concurrency, "concurrency", o.Concurrency,
		"how many nodes are worked on at the same time; all lost volumes of a node are worked on together")
	fs.BoolVar(&o.Version, "version", o.Version,
		"print the version and exit")
	fs.Var(verbosity{o}, "v",
		"verbosity of the log, a number: 0 shows decisions and actions, more shows details; short for --zap-log-level")
	o.Zap.BindFlags(fs)
	fs.Lookup("zap-time-encoding").Usage = "how the log writes times: epoch, millis, nano, iso8601, rfc3339 or rfc3339nano; " +
		"by RFC 3339 with milliseconds if not given"
}

func (o *Options) addDecisionFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.AttacherName, "attacher-name", o.AttacherName,
		"name of the CSI driver whose volumes are looked after")
	fs.StringVar(&o.PodLabelSelector, "pod-label-selector", o.PodLabelSelector,
		"label selector of the pods that may be removed")
	fs.DurationVar(&o.ConfirmedLossGracePeriod, "confirmed-loss-grace-period", o.ConfirmedLossGracePeriod,
		"how long a loss must last that all other replicas confirm")
	fs.DurationVar(&o.UnanimousLossGracePeriod, "unanimous-loss-grace-period", o.UnanimousLossGracePeriod,
		"how long a loss must last on which DRBD, LINSTOR and Kubernetes agree; off where it is not shorter than "+
			"--confirmed-loss-grace-period, or without --leader-election")
	fs.DurationVar(&o.KnownResourceGracePeriod, "known-resource-grace-period", o.KnownResourceGracePeriod,
		"how long any other loss must last")
	fs.DurationVar(&o.NewResourceGracePeriod, "new-resource-grace-period", o.NewResourceGracePeriod,
		"how long a loss must last while the pod or the resource is younger than this")
	fs.DurationVar(&o.KubeletSilence, "kubelet-silence", o.KubeletSilence,
		"how long a kubelet must not have renewed its Lease to count as silent, at least "+MinKubeletSilence.String()+
			"; longer where it renews more rarely than every 10s")
	fs.DurationVar(&o.ReconcileInterval, "reconcile-interval", o.ReconcileInterval,
		"how often a volume that is lost but cannot be moved is looked at again")
	fs.DurationVar(&o.ResyncInterval, "resync-interval", o.ResyncInterval,
		"how often everything known of LINSTOR is read again")
	fs.Var(taintKeys{&o.ShutdownTaints}, "shutdown-taint",
		"key of a further taint that says that a node is shut down, beside "+ShutdownTaint+"; may be repeated")
	fs.StringVar(&o.MaxLostNodes, "max-lost-nodes", o.MaxLostNodes,
		"how many nodes, or which percentage of them, may be lost within a short time before nothing is removed "+
			"any more; those that have been away for long do not count")
	fs.StringVar(&o.PauseDeployment, "pause-deployment", o.PauseDeployment,
		"Deployment, in the namespace of the leader election, whose annotation drbd.linbit.com/pause-fail-over pauses all fail-over; "+
			"empty for the one that runs the controller, which it finds by the owners of its own pod (POD_NAME and POD_NAMESPACE)")
	fs.StringVar(&o.RecoverPodSelector, "recover-pod-selector", o.RecoverPodSelector,
		"label selector of the pods of LINSTOR itself that are deleted when they are lost with their node, and "+
			"the LINSTOR controller's also when LINSTOR is blind; empty for none; the manifest sets it to those of "+
			"the Piraeus Operator")
	fs.BoolVar(&o.FailOverUnsafePods, "fail-over-unsafe-pods", o.FailOverUnsafePods,
		"remove also pods with volumes that may not be available elsewhere, such as hostPath")
}

func (o *Options) addActionFlags(fs *flag.FlagSet) {
	fs.BoolVar(&o.FastDetach, "fast-detach", o.FastDetach,
		"make Kubernetes detach at once by removing the volume from the volumesInUse of the lost node; without, "+
			"it takes up to a minute")
	fs.BoolVar(&o.Evacuation, "evacuation", o.Evacuation,
		"evacuate nodes that have the taint "+evacuation.TaintKey+", and take that back when it goes; without, the taint means nothing")
	fs.IntVar(&o.MaxConcurrentEvacuations, "max-concurrent-evacuations", o.MaxConcurrentEvacuations,
		"how many nodes are copied from, or leave, at a time; the others wait in the order in which they were tainted")
	fs.IntVar(&o.MaxConcurrentCopies, "max-concurrent-copies", o.MaxConcurrentCopies,
		"how many copies for nodes that are evacuated may be in progress in the cluster")
	fs.BoolVar(&o.DryRun, "dry-run", o.DryRun,
		"only say what would be done, in the log, in Events, in metrics, and in the conditions of nodes that are evacuated")
	fs.BoolVar(&o.DisableNodeTaints, "disable-node-taints", o.DisableNodeTaints,
		"do not taint nodes that lost their storage")
	fs.Int64Var(&o.GracePeriodSeconds, "grace-period-seconds", o.GracePeriodSeconds,
		"termination grace in seconds of pods on a node that may still be alive")
	fs.DurationVar(&o.OperationsTimeout, "operations-timeout", o.OperationsTimeout,
		"deadline of one look at a volume or a node, of each write of a fail-over, and of each request to "+
			"LINSTOR; what is not done by then is done by the next look")
}

func (o *Options) addLeaderElectionFlags(fs *flag.FlagSet) {
	fs.BoolVar(&o.LeaderElection, "leader-election", o.LeaderElection,
		"elect a leader; needed where several replicas run, and set by the manifest")
	fs.IntVar(&o.LeaderElectionHealthzPort, "leader-election-healtz-port", o.LeaderElectionHealthzPort,
		"port of /healthz and /readyz")
	fs.StringVar(&o.LeaderElectionLeaseName, "leader-election-lease-name", o.LeaderElectionLeaseName,
		"name of this replica in the election, part of its identity; the host name if not given")
	fs.StringVar(&o.LeaderElectionResourceName, "leader-election-resource-name", o.LeaderElectionResourceName,
		"name of the Lease that the replicas compete for")
	fs.StringVar(&o.LeaderElectionNamespace, "leader-election-namespace", o.LeaderElectionNamespace,
		"namespace of the Lease; the namespace of the pod if not given")
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", o.LeaseDuration,
		"how long to wait for a leader that stopped renewing")
	fs.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", o.RenewDeadline,
		"how long the leader tries to renew before it gives up")
	fs.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", o.RetryPeriod,
		"time between two tries to get or renew the Lease")
}

// taintKeys is the flag.Value of a repeatable option; each use adds a key once.
type taintKeys struct{ keys *[]string }

// String returns nothing, because the built-in key is no default that a use of the option would replace.
func (taintKeys) String() string { return "" }

// Set adds one key.
func (t taintKeys) Set(key string) error {
	if !slices.Contains(*t.keys, key) {
		// Clip keeps the append from writing into an array that a copy of the options shares.
		*t.keys = append(slices.Clip(*t.keys), key)
	}

	return nil
}

// verbosity is the flag.Value of --v, which sets the same level as --zap-log-level; of the two the last one counts.
type verbosity struct{ options *Options }

// String returns the default, which is what the flag package asks for.
func (verbosity) String() string { return "0" }

// Set takes a whole number. logr's verbosities are zap's levels below info, negated.
func (v verbosity) Set(s string) error {
	n, err := strconv.Atoi(s)

	switch {
	case err != nil:
		return errors.New("must be a whole number")
	case n < 0 || n > math.MaxInt8:
		return fmt.Errorf("must be between 0 and %d", math.MaxInt8)
	}

	v.options.Zap.Level = zapcore.Level(-n)

	return nil
}
