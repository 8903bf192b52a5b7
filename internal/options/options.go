// Package options holds the command line of the controller: one table, of which each row is an option.
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

// Options is the parsed command line. The table says what each field means, if no comment does. Default returns the defaults, Parse a
// validated set.
type Options struct {
	// AttacherName is the driver's name as PersistentVolumes and VolumeAttachments spell it.
	AttacherName string

	PodLabelSelector   string
	RecoverPodSelector string
	// PodSelector and RecoverSelector are the two above, parsed; RecoverSelector is nil if none is given.
	PodSelector, RecoverSelector labels.Selector

	ConfirmedLossGracePeriod time.Duration
	UnanimousLossGracePeriod time.Duration
	KnownResourceGracePeriod time.Duration
	NewResourceGracePeriod   time.Duration
	KubeletSilence           time.Duration
	ReconcileInterval        time.Duration
	ResyncInterval           time.Duration
	OperationsTimeout        time.Duration

	// MaxLostNodes is read by failover.ParseLimit.
	MaxLostNodes    string
	PauseDeployment string
	// ShutdownTaints are ShutdownTaint and the keys that were given.
	ShutdownTaints     []string
	FailOverUnsafePods bool
	GracePeriodSeconds int64
	FastDetach         bool
	DisableNodeTaints  bool
	DryRun             bool

	Evacuation               bool
	MaxConcurrentEvacuations int
	MaxConcurrentCopies      int

	// Concurrency costs next to nothing: a node that waits for answers must not hold up another one.
	Concurrency        int
	MetricsBindAddress string
	MetricsSecure      bool
	PprofBindAddress   string

	LeaseDuration              time.Duration
	RenewDeadline              time.Duration
	RetryPeriod                time.Duration
	LeaderElection             bool
	LeaderElectionHealthzPort  int
	LeaderElectionLeaseName    string
	LeaderElectionResourceName string
	LeaderElectionNamespace    string
	// Kubeconfig is the path of a file. Empty means the KUBECONFIG environment variable, then the ServiceAccount of the pod, then the
	// default file of the user.
	Kubeconfig string

	Version bool

	// Obsolete says of each given option that means nothing any more what takes its place, a sentence for each.
	Obsolete []string
	// Zap are the options of the logger, see Logger.
	Zap zap.Options
}

// Default returns the options of an empty command line.
func Default() Options {
	var o Options
	o.bind(flag.NewFlagSet("", flag.ContinueOnError))
	o.parseSelectors()
	return o
}

// bind adds every option to fs, and sets its field to the default.
func (o *Options) bind(fs *flag.FlagSet) {
	for _, row := range o.table() {
		row.bind(fs)
	}
	o.Zap = zap.Options{StacktraceLevel: stacktraceLevel, TimeEncoder: timeEncoder}
	o.Zap.BindFlags(fs)
	fs.Lookup("zap-time-encoding").Usage = "how the log writes times: epoch, millis, nano, iso8601, rfc3339 or rfc3339nano; " +
		"by RFC 3339 with milliseconds if not given"
}

// validate returns one line for each option that breaks a rule.
func (o *Options) validate() error {
	var errs []error
	for _, row := range o.table() {
		errs = append(errs, row.check())
	}
	return errors.Join(errs...)
}

// parseSelectors parses selectors that are valid.
func (o *Options) parseSelectors() {
	o.PodSelector, _ = labels.Parse(o.PodLabelSelector)
	if o.RecoverPodSelector != "" {
		o.RecoverSelector, _ = labels.Parse(o.RecoverPodSelector)
	}
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
	var o Options
	fs := flag.NewFlagSet("piraeus-ha-controller", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	o.bind(fs)
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
		// Without a name there is no identity; a rule then asks for one.
		o.LeaderElectionLeaseName, _ = os.Hostname()
	}

	if err := o.validate(); err != nil {
		return Options{}, err
	}
	o.parseSelectors()

	return o, nil
}
