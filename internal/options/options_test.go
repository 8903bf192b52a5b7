package options

import (
	"bytes"
	"errors"
	"flag"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// compare ignores what has no comparable form: the logger's options and the parsed selector.
var compare = cmpopts.IgnoreFields(Options{}, "Zap", "PodSelector", "LeaderElectionLeaseName")

func TestParse(t *testing.T) {
	t.Parallel()

	cases := map[string]struct {
		args []string
		want func(*Options)
	}{
		"an empty command line gives the defaults": {
			want: func(*Options) {},
		},
		"one dash does as well as two": {
			args: []string{"-attacher-name=csi.example.com"},
			want: func(o *Options) { o.AttacherName = "csi.example.com" },
		},
		"the options of the first central design are understood": {
			args: []string{
				"--attacher-name=csi.example.com", "--known-resource-grace-period=30s", "--new-resource-grace-period=1m",
				"--reconcile-interval=5s", "--pod-label-selector=a=b", "--kubeconfig=/tmp/config", "--leader-election=true",
				"--leader-election-healtz-port=9090", "--leader-election-resource-name=lock",
				"--leader-election-namespace=storage", "--v=5",
			},
			want: func(o *Options) {
				o.AttacherName = "csi.example.com"
				o.KnownResourceGracePeriod = 30 * time.Second
				o.NewResourceGracePeriod = time.Minute
				o.ReconcileInterval = 5 * time.Second
				o.PodLabelSelector = "a=b"
				o.Kubeconfig = "/tmp/config"
				o.LeaderElection = true
				o.LeaderElectionHealthzPort = 9090
				o.LeaderElectionResourceName = "lock"
				o.LeaderElectionNamespace = "storage"
			},
		},
		"the options of the agent design that mean the same are understood": {
			args: []string{
				"--grace-period-seconds=3", "--operations-timeout=1m", "--fail-over-unsafe-pods", "--disable-node-taints",
			},
			want: func(o *Options) {
				o.GracePeriodSeconds = 3
				o.OperationsTimeout = time.Minute
				o.FailOverUnsafePods = true
				o.DisableNodeTaints = true
			},
		},
		"further shutdown taints are added to the built-in one, each once": {
			args: []string{"--shutdown-taint=example.com/off", "--shutdown-taint", "example.com/gone", "--shutdown-taint=example.com/off"},
			want: func(o *Options) {
				o.ShutdownTaints = []string{ShutdownTaint, "example.com/off", "example.com/gone"}
			},
		},
		"metrics can be switched off": {
			args: []string{"--metrics-bind-address=0"},
			want: func(o *Options) { o.MetricsBindAddress = "0" },
		},
		"metrics can be bound to one address without encryption": {
			args: []string{"--metrics-bind-address=127.0.0.1:9090", "--metrics-secure=false"},
			want: func(o *Options) { o.MetricsBindAddress, o.MetricsSecure = "127.0.0.1:9090", false },
		},
		"metrics can be open to everybody in the network": {
			args: []string{"--metrics-secure=false"},
			want: func(o *Options) { o.MetricsSecure = false },
		},
		"the profiler can be switched on for this host": {
			args: []string{"--pprof-bind-address=localhost:6060"},
			want: func(o *Options) { o.PprofBindAddress = "localhost:6060" },
		},
		"the pods of LINSTOR itself are selected on request": {
			args: []string{"--recover-pod-selector=app in (linstor)"},
			want: func(o *Options) {
				o.RecoverPodSelector = "app in (linstor)"
				o.RecoverSelector, _ = labels.Parse("app in (linstor)")
			},
		},
		"a grace of zero is allowed": {
			args: []string{
				"--confirmed-loss-grace-period=0s", "--unanimous-loss-grace-period=0s",
				"--known-resource-grace-period=0s", "--new-resource-grace-period=0",
			},
			want: func(o *Options) {
				o.ConfirmedLossGracePeriod, o.UnanimousLossGracePeriod = 0, 0
				o.KnownResourceGracePeriod, o.NewResourceGracePeriod = 0, 0
			},
		},
		"the unanimous grace may be as long as the confirmed one, which switches it off": {
			args: []string{"--unanimous-loss-grace-period=5s"},
			want: func(o *Options) { o.UnanimousLossGracePeriod = 5 * time.Second },
		},
		"a switch is turned off with an equals sign": {
			args: []string{"--fast-detach=false"},
			want: func(o *Options) { o.FastDetach = false },
		},
		"asking for the version needs nothing else to be right": {
			args: []string{"--version", "--concurrency=0"},
			want: func(o *Options) { o.Version, o.Concurrency = true, 0 },
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			want := Default()
			tc.want(&want)

			got, err := Parse(tc.args)
			if err != nil {
				t.Fatalf("Parse(%q): %v", tc.args, err)
			}

			if diff := cmp.Diff(want, got, compare); diff != "" {
				t.Errorf("Parse(%q) mismatch (-want +got):\n%s", tc.args, diff)
			}
		})
	}
}

func TestParseNamesTheOptionAndTheFault(t *testing.T) {
	t.Parallel()

	cases := map[string]struct {
		args []string
		want []string
	}{
		"an unknown option":                                {[]string{"--nonsense"}, []string{"-nonsense"}},
		"a duration without a unit":                        {[]string{"--resync-interval=10"}, []string{"resync-interval", `"10"`, "a duration has a unit, such as 10s"}},
		"a switch with its value set apart":                {[]string{"--fast-detach", "false"}, []string{`"false"`, "--name=false"}},
		"a verbosity that is no number":                    {[]string{"--v=high"}, []string{"-v", "whole number"}},
		"a negative verbosity":                             {[]string{"--v=-1"}, []string{"-v", "between 0 and"}},
		"no driver name":                                   {[]string{"--attacher-name="}, []string{"--attacher-name", "RFC 1123"}},
		"a driver name that is too long":                   {[]string{"--attacher-name=" + strings.Repeat("a", 64)}, []string{"--attacher-name", "63"}},
		"a negative known grace":                           {[]string{"--known-resource-grace-period=-1s"}, []string{"--known-resource-grace-period", "-1s", "negative"}},
		"a negative new grace":                             {[]string{"--new-resource-grace-period=-1s"}, []string{"--new-resource-grace-period", "negative"}},
		"a negative confirmed grace":                       {[]string{"--confirmed-loss-grace-period=-1s"}, []string{"--confirmed-loss-grace-period", "negative"}},
		"a negative unanimous grace":                       {[]string{"--unanimous-loss-grace-period=-1s"}, []string{"--unanimous-loss-grace-period", "negative"}},
		"a silence shorter than a Lease renewal":           {[]string{"--kubelet-silence=10s"}, []string{"--kubelet-silence", "at least 12s"}},
		"no reconcile interval":                            {[]string{"--reconcile-interval=0"}, []string{"--reconcile-interval", "greater than zero"}},
		"no resync interval":                               {[]string{"--resync-interval=0"}, []string{"--resync-interval", "greater than zero"}},
		"no operations timeout":                            {[]string{"--operations-timeout=0"}, []string{"--operations-timeout", "greater than zero"}},
		"a selector that does not parse":                   {[]string{"--pod-label-selector=a=b=c"}, []string{"--pod-label-selector", "a=b=c"}},
		"a selector of LINSTOR's pods that does not parse": {[]string{"--recover-pod-selector=a=b=c"}, []string{"--recover-pod-selector", "a=b=c"}},
		"a selector of LINSTOR's pods that selects all":    {[]string{"--recover-pod-selector= "}, []string{"--recover-pod-selector", "every pod"}},
		"a profiler that everybody in the network reaches": {[]string{"--pprof-bind-address=:6060"}, []string{"--pprof-bind-address", "127.0.0.1"}},
		"a profiler's address without a port":              {[]string{"--pprof-bind-address=localhost"}, []string{"--pprof-bind-address", "host:port"}},
		"a selector that selects every pod":                {[]string{"--pod-label-selector="}, []string{"--pod-label-selector", "every pod"}},
		"a shutdown taint that is no key":                  {[]string{"--shutdown-taint=a b"}, []string{"--shutdown-taint", `"a b"`}},
		"a shutdown taint with an effect":                  {[]string{"--shutdown-taint=a:NoSchedule"}, []string{"--shutdown-taint", "key of a taint"}},
		"a grace that would force the deletion":            {[]string{"--grace-period-seconds=0"}, []string{"--grace-period-seconds", "at least 1"}},
		"no workers":                                       {[]string{"--concurrency=0"}, []string{"--concurrency", "at least 1"}},
		"a port out of range":                              {[]string{"--leader-election-healtz-port=65536"}, []string{"--leader-election-healtz-port", "65535"}},
		"a metrics address without a port":                 {[]string{"--metrics-bind-address=localhost"}, []string{"--metrics-bind-address", "host:port"}},
		"a metrics port out of range":                      {[]string{"--metrics-bind-address=:65536"}, []string{"--metrics-bind-address", "host:port"}},
		"a Lease name that is no name":                     {[]string{"--leader-election-resource-name=a_b"}, []string{"--leader-election-resource-name"}},
		"a namespace that is no name":                      {[]string{"--leader-election-namespace=a.b"}, []string{"--leader-election-namespace"}},
		"a Lease not longer than the deadline": {
			[]string{"--leader-elect-lease-duration=5s"}, []string{"--leader-elect-lease-duration", "--leader-elect-renew-deadline", "5s"},
		},
		"a deadline too short for one retry": {
			[]string{"--leader-elect-renew-deadline=2400ms"}, []string{"--leader-elect-renew-deadline", "--leader-elect-retry-period", "1.2"},
		},
		"no retry period": {[]string{"--leader-elect-retry-period=0"}, []string{"--leader-elect-retry-period", "greater than zero"}},
		"several faults at once": {
			[]string{"--concurrency=0", "--resync-interval=-1s"}, []string{"--concurrency", "--resync-interval"},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := Parse(tc.args)
			if err == nil {
				t.Fatalf("Parse(%q) succeeded, want an error", tc.args)
			}

			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("Parse(%q) = %q, want it to mention %q", tc.args, err, part)
				}
			}

			if lines := strings.Count(err.Error(), "\n") + 1; lines > max(1, len(tc.args)) {
				t.Errorf("Parse(%q) = %q, want one line for each fault", tc.args, err)
			}
		})
	}
}

func TestParseSelector(t *testing.T) {
	t.Parallel()

	o, err := Parse([]string{"--pod-label-selector=tier in (db,queue),!exempt"})
	if err != nil {
		t.Fatal(err)
	}

	if !o.PodSelector.Matches(labels.Set{"tier": "db"}) || o.PodSelector.Matches(labels.Set{"tier": "db", "exempt": ""}) {
		t.Errorf("PodSelector = %q, does not select what was asked for", o.PodSelector)
	}
}

func TestIdentityIsTheHostNameUnlessGiven(t *testing.T) {
	t.Parallel()

	o, err := Parse([]string{"--leader-election-lease-name=pod-1"})
	if err != nil {
		t.Fatal(err)
	}

	if o.LeaderElectionLeaseName != "pod-1" {
		t.Errorf("identity = %q, want the one given", o.LeaderElectionLeaseName)
	}

	if o, err = Parse(nil); err != nil || o.LeaderElectionLeaseName == "" {
		t.Errorf("Parse() = identity %q, error %v, want the host name", o.LeaderElectionLeaseName, err)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()

	for _, arg := range []string{"-h", "--help"} {
		if _, err := Parse([]string{arg}); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("Parse(%q) = %v, want flag.ErrHelp", arg, err)
		}
	}

	var b bytes.Buffer
	if err := Usage(&b); err != nil {
		t.Fatal(err)
	}

	for _, line := range []string{"--known-resource-grace-period=45s\n", "--zap-log-level", "--v=0\n", "LS_CONTROLLERS"} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("the help does not mention %q:\n%s", line, b.String())
		}
	}
}

func TestDefaultsAreNotShared(t *testing.T) {
	t.Parallel()

	first, err := Parse([]string{"--shutdown-taint=example.com/off"})
	if err != nil {
		t.Fatal(err)
	}

	if got := Default().ShutdownTaints; len(got) != 1 || len(first.ShutdownTaints) != 2 {
		t.Errorf("Default() has %q after %q were parsed", got, first.ShutdownTaints)
	}
}

func TestValuesAreWrittenAndCostNothingWithoutALine(t *testing.T) {
	t.Parallel()
	o, err := Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	volume := &spelled{text: "pvc-1"}
	log := Logger(o, zap.WriteTo(&b)).WithValues("volume", volume).WithName("failover").WithValues("node", "node-a")
	log.V(1).Info("Details")
	if volume.times > 0 || b.Len() > 0 {
		t.Errorf("values were written %d times without a line: %s", volume.times, &b)
	}
	log.Info("Decided", "verdict", "Lost")
	for _, want := range []string{`"volume":"pvc-1"`, `"node":"node-a"`, `"verdict":"Lost"`, `"logger":"failover"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in %s", want, &b)
		}
	}
}

// The steps of a fail-over are milliseconds apart. Whoever asks for another way to write times gets that.
func TestTimesInTheLogHaveMilliseconds(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                            `"ts":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)"`,
		"--zap-time-encoding=rfc3339": `"ts":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)"`,
		"--zap-time-encoding=epoch":   `"ts":\d+\.\d+`,
		"--v=0":                       `"ts":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)"`,
	} {
		o, err := Parse(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		Logger(o, zap.WriteTo(&b)).Info("Decided")
		if !regexp.MustCompile(want).Match(b.Bytes()) {
			t.Errorf("%q writes %s", args, &b)
		}
	}
}

// spelled counts how often it is written.
type spelled struct {
	text  string
	times int
}

func (s *spelled) String() string {
	s.times++
	return s.text
}

func TestLogger(t *testing.T) {
	t.Parallel()

	cases := map[string]struct {
		args []string
		// want is how many of the 250 equal lines at each verbosity 0, 1, 2 are written.
		want [3]int
	}{
		"by default all decisions and nothing else": {nil, [3]int{250, 0, 0}},
		"verbosity 1":                    {[]string{"--v=1"}, [3]int{250, 250, 0}},
		"verbosity 2":                    {[]string{"--v=2"}, [3]int{250, 250, 250}},
		"errors only":                    {[]string{"--zap-log-level=error"}, [3]int{}},
		"the later of two names counts":  {[]string{"--v=2", "--zap-log-level=info"}, [3]int{250, 0, 0}},
		"development mode shows details": {[]string{"--zap-devel"}, [3]int{250, 250, 0}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			o, err := Parse(tc.args)
			if err != nil {
				t.Fatal(err)
			}

			var b bytes.Buffer

			log := Logger(o, zap.WriteTo(&b))
			for range 250 {
				log.Info("Verbosity zero")
				log.V(1).Info("Verbosity one")
				log.V(2).Info("Verbosity two")
			}

			got := [3]int{
				strings.Count(b.String(), "Verbosity zero"),
				strings.Count(b.String(), "Verbosity one"),
				strings.Count(b.String(), "Verbosity two"),
			}
			if got != tc.want {
				t.Errorf("lines per verbosity = %v, want %v", got, tc.want)
			}

			if log.V(2).Enabled() != (tc.want[2] > 0) {
				t.Errorf("V(2).Enabled() = %t", log.V(2).Enabled())
			}
		})
	}
}

func TestRoutineErrorsHaveNoStack(t *testing.T) {
	t.Parallel()

	o, err := Parse(nil)
	if err != nil {
		t.Fatal(err)
	}

	var b bytes.Buffer
	Logger(o, zap.WriteTo(&b)).Error(errors.New("refused"), "Reading LINSTOR failed")

	if !strings.Contains(b.String(), "refused") || strings.Contains(b.String(), "stacktrace") {
		t.Errorf("log line = %s, want the error without a stack", b.String())
	}
}

func TestOpenMetricsAreKnownForThat(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		args []string
		open bool
	}{
		"by default Kubernetes says who may read them":        {nil, false},
		"whoever reaches the port reads them":                 {[]string{"--metrics-secure=false"}, true},
		"whoever reaches the named host reads them":           {[]string{"--metrics-secure=false", "--metrics-bind-address=example.com:80"}, true},
		"without encryption they are for this host only":      {[]string{"--metrics-secure=false", "--metrics-bind-address=127.0.0.1:80"}, false},
		"metrics that are switched off are for nobody at all": {[]string{"--metrics-secure=false", "--metrics-bind-address=0"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			opts, err := Parse(tc.args)
			if err != nil {
				t.Fatal(err)
			}

			if got := opts.MetricsOpen(); got != tc.open {
				t.Errorf("open: %t, want %t", got, tc.open)
			}
		})
	}
}
