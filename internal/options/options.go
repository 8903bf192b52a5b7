// Package options holds the command line of the controller: one struct, one place for the defaults, one Validate.
//
// The names and defaults that the first central design of this controller had are kept, also where they are spelt oddly
// (--leader-election-healtz-port), so that existing Deployments keep working. How to reach LINSTOR is not an option: it
// comes from the LS_* environment variables that all LINSTOR clients share.
package options

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// ShutdownTaint is the key of the taint that Kubernetes' cloud controllers put on a node whose machine they know to be
// shut down.
const ShutdownTaint = "node.cloudprovider.kubernetes.io/shutdown"

// Options is the parsed command line. Default returns the defaults, Parse a validated set.
type Options struct {
	// AttacherName is the name of the CSI driver whose volumes are looked after, as PersistentVolumes and
	// VolumeAttachments spell it. Volumes of other drivers are never touched.
	AttacherName string

	// KnownResourceGracePeriod is how long a volume must be lost before its pods are removed, where the evidence is less
	// than complete: too few replicas could be asked, or the loss shows only in the state of the node itself. Zero or more.
	KnownResourceGracePeriod time.Duration

	// NewResourceGracePeriod takes the place of KnownResourceGracePeriod while the pod or the LINSTOR resource is younger
	// than this period, because a volume that starts looks much like one that was lost. Zero or more.
	NewResourceGracePeriod time.Duration

	// ConfirmedLossGracePeriod is how long a volume must be lost before its pods are removed, where every other replica
	// that can be asked confirms that the node is cut off and cannot have quorum. Zero or more.
	ConfirmedLossGracePeriod time.Duration

	// UnanimousLossGracePeriod is how long a volume must be lost before its pods are removed, where the networks of DRBD, of
	// LINSTOR and of Kubernetes agree that its node is gone. As long as ConfirmedLossGracePeriod or longer, it makes no
	// difference, nor does it without LeaderElection. Zero or more.
	UnanimousLossGracePeriod time.Duration

	// KubeletSilence is for how long a kubelet must not have renewed its Lease to count as silent. A kubelet renews it
	// every 10 seconds, so that MinKubeletSilence is the least.
	KubeletSilence time.Duration

	// ReconcileInterval is how often a volume that is lost but cannot be moved is looked at again. Greater than zero.
	ReconcileInterval time.Duration

	// ResyncInterval is how often everything known of LINSTOR is read again, whatever its events say. Greater than zero.
	ResyncInterval time.Duration

	// FastDetach says whether a volume may be removed from the volumesInUse of the node that lost it, before its
	// attachment is deleted. Without, Kubernetes takes up to a minute to notice that the attachment is gone.
	FastDetach bool

	// PodLabelSelector selects the pods that may be removed, in the syntax of kubectl --selector. It must not be empty:
	// an empty selector selects every pod.
	PodLabelSelector string

	// PodSelector is PodLabelSelector, parsed by Parse.
	PodSelector labels.Selector

	// RecoverPodSelector selects the pods of LINSTOR itself that may be deleted when they are lost together with their
	// node, or where LINSTOR is blind, in the syntax of kubectl --selector. Empty selects none.
	RecoverPodSelector string

	// RecoverSelector is RecoverPodSelector, parsed by Parse; nil where that is empty.
	RecoverSelector labels.Selector

	// Kubeconfig is the path of a kubeconfig file. Empty means the KUBECONFIG environment variable, then the
	// ServiceAccount of the pod, then the default file of the user.
	Kubeconfig string

	// LeaderElection says whether this process takes part in a leader election. It must where several run.
	LeaderElection bool

	// LeaderElectionHealthzPort is the TCP port of /healthz and /readyz, 1 to 65535, on all addresses.
	LeaderElectionHealthzPort int

	// LeaderElectionLeaseName is the name of this replica in the election, unique among those that take part, and the
	// first part of its process's identity.
	// The default is the host name, which in a pod is the name of the pod.
	LeaderElectionLeaseName string

	// LeaderElectionResourceName is the name of the Lease that the processes compete for.
	LeaderElectionResourceName string

	// LeaderElectionNamespace is the namespace of that Lease. Empty means the namespace of the pod.
	LeaderElectionNamespace string

	// LeaseDuration is how long others wait for a leader that stopped renewing. Greater than RenewDeadline.
	LeaseDuration time.Duration

	// RenewDeadline is how long the leader tries to renew before it gives up. Greater than 1.2 times RetryPeriod, which
	// is the largest jitter of client-go's elector.
	RenewDeadline time.Duration

	// RetryPeriod is the time between two tries to get or renew the Lease. Greater than zero.
	RetryPeriod time.Duration

	// GracePeriodSeconds is the termination grace, in seconds, of a pod that is removed from a node that may still be
	// alive. One or more: to the Kubernetes API zero means to forget the pod without asking its node.
	GracePeriodSeconds int64

	// OperationsTimeout is the deadline of one look at a volume or a node, with all that follows from it, of each write of a
	// fail-over, which may outlive the look, and of each request to LINSTOR that is no event stream. Greater than zero.
	OperationsTimeout time.Duration

	// FailOverUnsafePods says whether pods are removed that also use volumes of a kind that cannot be known to be
	// available on another node, such as hostPath.
	FailOverUnsafePods bool

	// MaxLostNodes is how much of the cluster may seem lost at once before nothing is removed any more, as
	// failover.ParseLimit reads it: a number of nodes, or a percentage.
	MaxLostNodes string

	// Evacuation says whether nodes with the taint piraeus.io/evacuate are evacuated.
	Evacuation bool

	// MaxConcurrentEvacuations is how many nodes are copied from, or leave, at a time. One or more.
	MaxConcurrentEvacuations int

	// MaxConcurrentCopies is how many copies of evacuations may be in progress in the cluster. One or more.
	MaxConcurrentCopies int

	// PauseDeployment is the name of the Deployment whose annotation drbd.linbit.com/pause-fail-over pauses fail-over
	// for all workloads; it is looked up in LeaderElectionNamespace. Empty means the one that runs the controller.
	PauseDeployment string

	// DryRun says whether the controller only says what it would do.
	DryRun bool

	// DisableNodeTaints says whether nodes that lost their storage are left without the taint that keeps new pods away.
	DisableNodeTaints bool

	// ShutdownTaints are the keys of the taints that say that a node is known to be shut down: always ShutdownTaint, and
	// those given by --shutdown-taint.
	ShutdownTaints []string

	// PprofBindAddress is the address of Go's profiler, host:port of this host only, because it asks nobody who
	// he is. Empty switches it off.
	PprofBindAddress string

	// MetricsBindAddress is the address of the metrics server, host:port or :port. "0" switches it off.
	MetricsBindAddress string

	// MetricsSecure says whether metrics are served by HTTPS, to clients that the Kubernetes API authenticates and
	// authorizes for the path.
	MetricsSecure bool

	// Concurrency is how many nodes are worked on at the same time. One or more. A node that waits for answers of the API or of
	// LINSTOR costs next to nothing, and must not hold up another one, so that the default is high.
	Concurrency int

	// Obsolete says of each given option that means nothing any more what takes its place, a sentence for each.
	Obsolete []string

	// Version asks to print the version and exit.
	Version bool

	// Zap are the options of the logger, see Logger.
	Zap zap.Options
}

// Default returns the options of an empty command line. PodSelector is set.
func Default() Options {
	o := Options{
		AttacherName:               "linstor.csi.linbit.com",
		KnownResourceGracePeriod:   45 * time.Second,
		NewResourceGracePeriod:     45 * time.Second,
		ConfirmedLossGracePeriod:   5 * time.Second,
		UnanimousLossGracePeriod:   time.Second,
		KubeletSilence:             20 * time.Second,
		ReconcileInterval:          10 * time.Second,
		ResyncInterval:             10 * time.Minute,
		FastDetach:                 true,
		PodLabelSelector:           "linstor.csi.linbit.com/on-storage-lost=remove",
		LeaderElectionHealthzPort:  8080,
		LeaderElectionResourceName: "piraeus-ha-controller",
		LeaseDuration:              10 * time.Second,
		RenewDeadline:              5 * time.Second,
		RetryPeriod:                2 * time.Second,
		GracePeriodSeconds:         10,
		OperationsTimeout:          30 * time.Second,
		ShutdownTaints:             []string{ShutdownTaint},
		MaxLostNodes:               "50%",
		Evacuation:                 true,
		MaxConcurrentEvacuations:   1,
		MaxConcurrentCopies:        4,
		MetricsBindAddress:         ":8443",
		MetricsSecure:              true,
		Concurrency:                100,
		Zap:                        zap.Options{StacktraceLevel: stacktraceLevel, TimeEncoder: timeEncoder},
	}
	o.PodSelector, _ = labels.Parse(o.PodLabelSelector)

	return o
}

// SuchAs says how a duration is written.
const SuchAs = "a duration has a unit, such as 10s"

// misread is what the flag package says of a value that it cannot read.
var misread = regexp.MustCompile(`for flag -(\S+): parse error$`)

// explained says what is wrong with the value of a duration, of which the flag package does not.
func explained(fs *flag.FlagSet, err error) string {
	text := err.Error()
	match := misread.FindStringSubmatch(text)
	if match == nil {
		return text
	}
	if value, ok := fs.Lookup(match[1]).Value.(flag.Getter); ok {
		if _, duration := value.Get().(time.Duration); duration {
			return strings.TrimSuffix(text, "parse error") + SuchAs
		}
	}
	return text
}

// Parse reads the command line, without the name of the program, and validates it. It writes nothing.
//
// The error is flag.ErrHelp where --help was given: print Usage. Otherwise it has one line per fault, each naming the
// option. With --version nothing else is validated.
func Parse(args []string) (Options, error) {
	o := Default()
	fs := flag.NewFlagSet("piraeus-ha-controller", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	o.addFlags(fs)
	o.acceptObsolete(fs)

	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return Options{}, flag.ErrHelp
		}

		return Options{}, fmt.Errorf("reading the command line: %s (--help lists the options)", explained(fs, err))
	}

	if fs.NArg() > 0 {
		return Options{}, fmt.Errorf(
			"reading the command line: unexpected argument %q: options start with -- and switches take their value as --name=false",
			fs.Arg(0))
	}

	if o.Version {
		return o, nil
	}

	if o.LeaderElectionLeaseName == "" {
		// Without a name there is no identity; Validate then asks for one.
		o.LeaderElectionLeaseName, _ = os.Hostname()
	}

	if err := o.Validate(); err != nil {
		return Options{}, err
	}

	var err error
	if o.PodSelector, err = labels.Parse(o.PodLabelSelector); err != nil {
		return Options{}, invalid("pod-label-selector", o.PodLabelSelector, err.Error())
	}

	if o.RecoverPodSelector != "" {
		if o.RecoverSelector, err = labels.Parse(o.RecoverPodSelector); err != nil {
			return Options{}, invalid("recover-pod-selector", o.RecoverPodSelector, err.Error())
		}
	}

	return o, nil
}
