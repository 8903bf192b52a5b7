package options

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// MinKubeletSilence is the least value of --kubelet-silence. A kubelet renews its Lease every 10 seconds, so that a
// shorter silence would be seen of every kubelet, however well.
const MinKubeletSilence = failover.ForceSilence

// maxDriverName is the longest name that Kubernetes accepts for a CSI driver.
const maxDriverName = 63

// unless returns a fault if a value is not right.
func unless(right bool, format string, args ...any) string {
	if right {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// first returns the first of the faults that Kubernetes finds.
func first(faults []string) string {
	if len(faults) == 0 {
		return ""
	}
	return faults[0]
}

// ifGiven applies a rule to values that are not empty.
func ifGiven(of rule[string]) rule[string] {
	return func(value string) string {
		if value == "" {
			return ""
		}
		return of(value)
	}
}

func notNegative(d time.Duration) string { return unless(d >= 0, "must not be negative") }

func positive(d time.Duration) string { return unless(d > 0, "must be greater than zero") }

func atLeast[T cmp.Ordered](least T, because string) rule[T] {
	return func(value T) string { return unless(value >= least, "must be at least %v%s", least, because) }
}

func port(number int) string {
	return unless(number >= 1 && number <= 65535, "must be a port, 1 to 65535")
}

func objectName(name string) string { return first(validation.IsDNS1123Subdomain(name)) }

func namespace(name string) string { return first(validation.IsDNS1123Label(name)) }

func driverName(name string) string {
	return cmp.Or(unless(len(name) <= maxDriverName, "must be no longer than %d characters", maxDriverName), objectName(name))
}

func limit(text string) string {
	if _, err := failover.ParseLimit(text); err != nil {
		return err.Error()
	}
	return ""
}

func selector(text string) string {
	parsed, err := labels.Parse(text)
	if err != nil {
		return err.Error()
	}
	return unless(!parsed.Empty(), "must name a label, because an empty selector selects every pod")
}

func taintKey(key string) string {
	if fault := first(validation.IsQualifiedName(key)); fault != "" {
		return "must be the key of a taint: " + fault
	}
	return unless(key != evacuation.TaintKey, "must not be the taint of an evacuation, whose node lives")
}

func metricsAddress(address string) string {
	_, hasPort := hostOf(address)
	return unless(hasPort || address == "0", "must be host:port, :port, or 0 to switch metrics off")
}

func addressOfThisHost(address string) string {
	host, hasPort := hostOf(address)
	return unless(hasPort && isThisHost(host),
		"must be host:port of this host only, such as 127.0.0.1:6060, because the profiler is open to everybody")
}

// hostOf returns the host of an address, and whether the address has a valid port.
func hostOf(address string) (string, bool) {
	host, number, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(number, 10, 16)
	}
	return host, err == nil
}

// isThisHost reports whether only this host can reach what listens there.
func isThisHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// MetricsOpen reports whether anybody else in the network may read the metrics, without being asked who they are.
func (o *Options) MetricsOpen() bool {
	host, _, err := net.SplitHostPort(o.MetricsBindAddress)
	return !o.MetricsSecure && err == nil && !isThisHost(host)
}
