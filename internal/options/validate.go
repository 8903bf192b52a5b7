package options

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// MinKubeletSilence is the least value of --kubelet-silence. A kubelet renews its Lease every 10 seconds, so that a
// shorter silence would be seen of every kubelet, however well.
const MinKubeletSilence = failover.ForceSilence

// maxDriverName is the longest name that Kubernetes accepts for a CSI driver.
const maxDriverName = 63

// Validate checks every option, and returns one line for each that is wrong.
func (o *Options) Validate() error {
	return errors.Join(
		o.validateDurations(),
		o.validateNames(),
		o.validateNumbers(),
		o.validateLeaderElection(),
	)
}

func (o *Options) validateDurations() error {
	return errors.Join(
		notNegative("known-resource-grace-period", o.KnownResourceGracePeriod),
		notNegative("new-resource-grace-period", o.NewResourceGracePeriod),
		notNegative("confirmed-loss-grace-period", o.ConfirmedLossGracePeriod),
		notNegative("unanimous-loss-grace-period", o.UnanimousLossGracePeriod),
		atLeast("kubelet-silence", o.KubeletSilence, MinKubeletSilence,
			"a kubelet renews its Lease every 10s and a shorter silence means nothing"),
		positive("reconcile-interval", o.ReconcileInterval),
		positive("resync-interval", o.ResyncInterval),
		positive("operations-timeout", o.OperationsTimeout),
	)
}

func (o *Options) validateNames() error {
	var errs []error

	if len(o.AttacherName) > maxDriverName {
		errs = append(errs, invalid("attacher-name", o.AttacherName, fmt.Sprintf("must be no longer than %d characters", maxDriverName)))
	} else if faults := validation.IsDNS1123Subdomain(o.AttacherName); len(faults) > 0 {
		errs = append(errs, invalid("attacher-name", o.AttacherName, faults[0]))
	}

	if _, err := failover.ParseLimit(o.MaxLostNodes); err != nil {
		errs = append(errs, invalid("max-lost-nodes", o.MaxLostNodes, err.Error()))
	}

	if name := o.PauseDeployment; name != "" {
		if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
			errs = append(errs, invalid("pause-deployment", name, faults[0]))
		}
	}

	for _, key := range o.ShutdownTaints {
		if key == evacuation.TaintKey {
			errs = append(errs, invalid("shutdown-taint", key, "must not be the taint of an evacuation, whose node lives"))
		}

		if faults := validation.IsQualifiedName(key); len(faults) > 0 {
			errs = append(errs, invalid("shutdown-taint", key, "must be the key of a taint: "+faults[0]))
		}
	}

	return errors.Join(append(errs, o.validateSelector())...)
}

func (o *Options) validateSelector() error {
	selector, err := labels.Parse(o.PodLabelSelector)

	switch {
	case err != nil:
		return invalid("pod-label-selector", o.PodLabelSelector, err.Error())
	case selector.Empty():
		return invalid("pod-label-selector", o.PodLabelSelector, "must name a label, because an empty selector selects every pod")
	}

	recovered, err := labels.Parse(o.RecoverPodSelector)

	switch {
	case err != nil:
		return invalid("recover-pod-selector", o.RecoverPodSelector, err.Error())
	case o.RecoverPodSelector != "" && recovered.Empty():
		return invalid("recover-pod-selector", o.RecoverPodSelector, "must name a label, because this selects every pod")
	default:
		return nil
	}
}

func (o *Options) validateNumbers() error {
	var errs []error

	if o.GracePeriodSeconds < 1 {
		errs = append(errs, invalid("grace-period-seconds", strconv.FormatInt(o.GracePeriodSeconds, 10),
			"must be at least 1, because 0 makes Kubernetes forget a pod that may still run"))
	}

	if o.Concurrency < 1 {
		errs = append(errs, invalid("concurrency", strconv.Itoa(o.Concurrency), "must be at least 1"))
	}

	if o.MaxConcurrentEvacuations < 1 {
		errs = append(errs, invalid("max-concurrent-evacuations", strconv.Itoa(o.MaxConcurrentEvacuations),
			"must be at least 1; --evacuation=false evacuates none"))
	}

	if o.MaxConcurrentCopies < 1 {
		errs = append(errs, invalid("max-concurrent-copies", strconv.Itoa(o.MaxConcurrentCopies), "must be at least 1"))
	}

	if p := o.LeaderElectionHealthzPort; p < 1 || p > 65535 {
		errs = append(errs, invalid("leader-election-healtz-port", strconv.Itoa(p), "must be a port, 1 to 65535"))
	}

	return errors.Join(append(errs, o.validateMetricsAddress(), o.validatePprofAddress())...)
}

func (o *Options) validateMetricsAddress() error {
	if o.MetricsBindAddress == "0" {
		return nil
	}

	const want = "must be host:port, :port, or 0 to switch metrics off"

	_, port, err := net.SplitHostPort(o.MetricsBindAddress)
	if err != nil {
		return invalid("metrics-bind-address", o.MetricsBindAddress, want)
	}

	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return invalid("metrics-bind-address", o.MetricsBindAddress, want)
	}

	return nil
}

// MetricsOpen tells whether anybody else in the network may read the metrics, without being asked who they are.
func (o *Options) MetricsOpen() bool {
	host, _, err := net.SplitHostPort(o.MetricsBindAddress)

	return !o.MetricsSecure && err == nil && !isThisHost(host)
}

func (o *Options) validatePprofAddress() error {
	if o.PprofBindAddress == "" {
		return nil
	}

	host, port, err := net.SplitHostPort(o.PprofBindAddress)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}

	if err != nil || !isThisHost(host) {
		return invalid("pprof-bind-address", o.PprofBindAddress,
			"must be host:port of this host only, such as 127.0.0.1:6060, because the profiler is open to everybody")
	}

	return nil
}

// isThisHost tells whether only this host can reach what listens there.
func isThisHost(host string) bool {
	ip := net.ParseIP(host)

	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (o *Options) validateLeaderElection() error {
	var errs []error

	if o.LeaderElection && o.LeaderElectionLeaseName == "" {
		errs = append(errs, invalid("leader-election-lease-name", "", "must be given, because the host has no name"))
	}

	if faults := validation.IsDNS1123Subdomain(o.LeaderElectionResourceName); len(faults) > 0 {
		errs = append(errs, invalid("leader-election-resource-name", o.LeaderElectionResourceName, faults[0]))
	}

	if ns := o.LeaderElectionNamespace; ns != "" {
		if faults := validation.IsDNS1123Label(ns); len(faults) > 0 {
			errs = append(errs, invalid("leader-election-namespace", ns, faults[0]))
		}
	}

	errs = append(errs, positive("leader-elect-retry-period", o.RetryPeriod))

	// The three relations are client-go's own; its elector refuses to start otherwise, but names no option.
	if o.LeaseDuration <= o.RenewDeadline {
		errs = append(errs, invalid("leader-elect-lease-duration", o.LeaseDuration.String(),
			"must be greater than --leader-elect-renew-deadline, which is "+o.RenewDeadline.String()))
	}

	if least := time.Duration(leaderelection.JitterFactor * float64(o.RetryPeriod)); o.RenewDeadline <= least {
		errs = append(errs, invalid("leader-elect-renew-deadline", o.RenewDeadline.String(), fmt.Sprintf(
			"must be greater than %g times --leader-elect-retry-period, which is %s", leaderelection.JitterFactor, o.RetryPeriod)))
	}

	return errors.Join(errs...)
}

func notNegative(option string, d time.Duration) error {
	if d < 0 {
		return invalid(option, d.String(), "must not be negative")
	}

	return nil
}

func positive(option string, d time.Duration) error {
	if d <= 0 {
		return invalid(option, d.String(), "must be greater than zero")
	}

	return nil
}

func atLeast(option string, d, least time.Duration, because string) error {
	if d < least {
		return invalid(option, d.String(), "must be at least "+least.String()+", because "+because)
	}

	return nil
}

// invalid is the error of one option, on one line whatever the fault says.
func invalid(option, value, fault string) error {
	return fmt.Errorf("invalid option --%s=%q: %s", option, value, strings.ReplaceAll(fault, "\n", " "))
}
