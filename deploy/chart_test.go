package deploy

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
)

const chart = "charts/piraeus-ha-controller"

// majors are the majors of Helm that users have.
var majors = []string{"helm3", "helm4"}

// helm returns the command that runs a major of Helm with folders of its own, so that it finds nothing of who runs the test.
func helm(t *testing.T, major string, args ...string) *exec.Cmd {
	t.Helper()
	forMaintainers(t, "TestWithHelm")
	binary, err := filepath.Abs(filepath.Join("..", "bin", major))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("%v; run `make helm` first", err)
	}
	// It may be called when the test has ended.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, args...)
	home := filepath.Join(os.TempDir(), "helm-home")
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	return cmd
}

// render returns what the chart makes of values in the namespace of the shipped manifest.
func render(t *testing.T, major, values string) []byte {
	t.Helper()
	return output(t, helm(t, major, "template", name, chart, "--namespace="+namespace, "--values="+valuesFile(t, values)))
}

// rendered returns the objects that the chart makes of values.
func rendered(t *testing.T, values string) []*unstructured.Unstructured {
	t.Helper()
	return parseObjects(t, render(t, "helm4", values))
}

func valuesFile(t *testing.T, values string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return strconv.Quote(file) // the folder has the name of the test, and Helm separates files by commas
}

// TestWithHelmTheChartRendersTheShippedManifest compares the chart's default values with config/default. They differ in the name of the
// ServiceAccount and in Helm's labels, and only the manifest has the namespace, which Helm makes itself.
func TestWithHelmTheChartRendersTheShippedManifest(t *testing.T) {
	t.Parallel()
	want := byID(readObjects(t, "all.yaml"))
	delete(want, "Namespace /"+namespace)
	for _, major := range majors {
		got := byID(parseObjects(t, render(t, major, "")))
		for _, o := range got {
			o.SetLabels(withoutHelm(o.GetLabels()))
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		// What selects pods selects those of the release.
		text = []byte(strings.ReplaceAll(string(text), `"app.kubernetes.io/instance":"`+name+`",`, ""))
		var plain map[string]*unstructured.Unstructured
		if err := json.Unmarshal(text, &plain); err != nil {
			t.Fatal(err)
		}
		account := plain["ServiceAccount "+namespace+"/"+name]
		if account == nil {
			t.Fatalf("there is no ServiceAccount %s among %v", name, ids(parseObjects(t, render(t, major, ""))))
		}
		account.SetName(serviceAccount)
		plain = byID(slices.Collect(maps.Values(plain)))
		for _, o := range plain {
			renameAccount(t, o)
		}
		if diff := cmp.Diff(want, plain); diff != "" {
			t.Errorf("%s (-config/default +chart):\n%s", major, diff)
		}
	}
}

// withoutHelm returns labels without those that Helm's conventions add.
func withoutHelm(labels map[string]string) map[string]string {
	for _, key := range []string{"helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"} {
		delete(labels, key)
	}
	return labels
}

// renameAccount gives the chart's ServiceAccount the name of the shipped one wherever an object names it.
func renameAccount(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if o.GetKind() == "Deployment" {
		if err := unstructured.SetNestedField(o.Object, serviceAccount, "spec", "template", "spec", "serviceAccountName"); err != nil {
			t.Fatal(err)
		}
	}
	subjects, _, err := unstructured.NestedSlice(o.Object, "subjects")
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range subjects {
		if s, ok := subject.(map[string]any); ok && s["name"] == name {
			s["name"] = serviceAccount
		}
	}
	if len(subjects) > 0 {
		o.Object["subjects"] = subjects
	}
}

func byID(all []*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	m := map[string]*unstructured.Unstructured{}
	for _, o := range all {
		m[id(o)] = o
	}
	return m
}

// TestWithHelmBothMajorsRenderTheSame with every value that changes something.
func TestWithHelmBothMajorsRenderTheSame(t *testing.T) {
	t.Parallel()
	for _, values := range []string{"", everything} {
		three, four := parseObjects(t, render(t, "helm3", values)), parseObjects(t, render(t, "helm4", values))
		if diff := cmp.Diff(byID(three), byID(four)); diff != "" {
			t.Errorf("with %q (-Helm 3 +Helm 4):\n%s", values, diff)
		}
	}
}

// TestWithHelmBothMajorsFindNoFault with the chart, and make an archive of it.
func TestWithHelmBothMajorsFindNoFault(t *testing.T) {
	t.Parallel()
	for _, major := range majors {
		for _, values := range []string{"", everything} {
			output(t, helm(t, major, "lint", chart, "--strict", "--values="+valuesFile(t, values)))
		}
		output(t, helm(t, major, "package", chart, "--destination="+t.TempDir(), "--version=2.0.1", "--app-version=v2.0.1"))
	}
}

// everything are values that switch everything on.
const everything = `
linstor: {endpoint: "https://linstor.example.com:3371", clientSecret: certificates}
options: {v: 2, known-resource-grace-period: 60s, shutdown-taint: [example.com/off, example.com/gone], grace-period-seconds: 1000000}
manageAllPods: true
dryRun: true
replicas: 2
image: {repository: registry.example.com/ha, tag: v9, pullPolicy: Always}
imagePullSecrets: [{name: registry}]
podAnnotations: {example.com/team: storage}
nodeSelector: {disk: fast}
affinity: {nodeAffinity: {}}
extraArgs: [--max-lost-nodes=3]
extraEnv: [{name: LS_USERNAME, value: ha}]
extraVolumes: [{name: more, emptyDir: {}}]
extraVolumeMounts: [{name: more, mountPath: /more}]
serviceAccount: {annotations: {example.com/team: storage}}
networkPolicy: {enabled: true}
quota: {enabled: true}
priorityAndFairness: {enabled: true}
monitoring: {enabled: true, labels: {release: prometheus}, annotations: {grafana_folder: Storage}}
`

// TestWithHelmValuesReachTheDeployment renders the values that switch everything on, and reads them back from the Deployment.
func TestWithHelmValuesReachTheDeployment(t *testing.T) {
	t.Parallel()
	d := deploymentOf(t, rendered(t, everything))
	spec := d.Spec.Template.Spec
	c := spec.Containers[0]
	o := parsed(t, c)
	got := map[string]any{
		"replicas": *d.Spec.Replicas, "image": c.Image, "pull policy": c.ImagePullPolicy, "pull secret": spec.ImagePullSecrets[0].Name,
		"team": d.Spec.Template.Annotations["example.com/team"], "node": spec.NodeSelector["disk"], "affinity": spec.Affinity != nil,
		"user": envValue(c, "LS_USERNAME"), "LINSTOR": envValue(c, "LS_CONTROLLERS"), "CA": envValue(c, "LS_ROOT_CA_FILE"),
		"secret": spec.Volumes[0].Secret.SecretName, "volumes": len(spec.Volumes), "mount": c.VolumeMounts[0].MountPath,
		"mounts": len(c.VolumeMounts), "dry run": o.DryRun, "selector": o.PodLabelSelector,
		"grace": o.KnownResourceGracePeriod.String(), "seconds": o.GracePeriodSeconds, "guard": o.MaxLostNodes,
		"taints": strings.Join(o.ShutdownTaints[1:], " "),
	}
	want := map[string]any{
		"replicas": int32(2), "image": "registry.example.com/ha:v9", "pull policy": corev1.PullAlways, "pull secret": "registry",
		"team": "storage", "node": "fast", "affinity": true,
		"user": "ha", "LINSTOR": "https://linstor.example.com:3371", "CA": "/etc/linstor/client/ca.crt",
		"secret": "certificates", "volumes": 2, "mount": "/etc/linstor/client",
		"mounts": 2, "dry run": true, "selector": "linstor.csi.linbit.com/on-storage-lost!=keep",
		"grace": "1m0s", "seconds": int64(1000000), "guard": "3",
		"taints": "example.com/off example.com/gone",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWithHelmValuesSwitchObjectsOnAndOff lists the objects that single values add to the default ones or take from them.
func TestWithHelmValuesSwitchObjectsOnAndOff(t *testing.T) {
	t.Parallel()
	base := ids(rendered(t, ""))
	for values, want := range map[string]struct{ added, removed []string }{
		"networkPolicy: {enabled: true}":        {added: []string{"NetworkPolicy ha-controller/piraeus-ha-controller"}},
		"quota: {enabled: true}":                {added: []string{"ResourceQuota ha-controller/piraeus-ha-controller"}},
		"podDisruptionBudget: {enabled: false}": {removed: []string{"PodDisruptionBudget ha-controller/piraeus-ha-controller"}},
		"priorityAndFairness: {enabled: true}": {added: []string{
			"FlowSchema /piraeus-ha-controller", "PriorityLevelConfiguration /piraeus-ha-controller",
		}},
		"serviceAccount: {create: false, name: mine}": {removed: []string{"ServiceAccount ha-controller/piraeus-ha-controller"}},
		"rbac: {create: false}": {removed: []string{
			"ClusterRole /piraeus-ha-controller-manager", "ClusterRoleBinding /piraeus-ha-controller-manager",
			"Role ha-controller/piraeus-ha-controller-manager", "Role kube-node-lease/piraeus-ha-controller-manager",
			"RoleBinding ha-controller/piraeus-ha-controller-manager", "RoleBinding kube-node-lease/piraeus-ha-controller-manager",
		}},
	} {
		t.Run(values, func(t *testing.T) {
			t.Parallel()
			all := ids(rendered(t, values))
			if diff := cmp.Diff(want.added, added(base, all)); diff != "" {
				t.Errorf("added (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.removed, added(all, base)); diff != "" {
				t.Errorf("removed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWithHelmValuesOf1xWorkOn renders what users of 1.3 may have set, with the defaults of its chart among them.
func TestWithHelmValuesOf1xWorkOn(t *testing.T) {
	t.Parallel()
	d := deploymentOf(t, rendered(t, `
options: {v: 4, failOverTimeout: 10s, drbd-status-interval: 2s, grace-period-seconds: "20", reconcile-interval: 5s, operationsTimeout: 1m}
image: {repository: registry.example.com/ha, pullPolicy: IfNotPresent, tag: ""}
serviceAccount: {create: true, name: agents}
resources: {requests: {cpu: 50m, memory: 100Mi}}
podSecurityContext: {}
tolerations: [{key: node-role.kubernetes.io/master, effect: NoSchedule}, {key: example.com/storage, operator: Exists}]
nodeSelector: {}
affinity: {}
`))
	spec := d.Spec.Template.Spec
	o := parsed(t, spec.Containers[0])
	if o.GracePeriodSeconds != 20 || o.OperationsTimeout.String() != "1m0s" || o.ReconcileInterval.String() != "5s" {
		t.Errorf("options are lost: %q", spec.Containers[0].Args)
	}
	if spec.ServiceAccountName != "agents" || spec.Containers[0].Resources.Requests.Memory().String() != "100Mi" {
		t.Errorf("ServiceAccount %q, resources %v", spec.ServiceAccountName, spec.Containers[0].Resources)
	}
	var keys []string
	for _, toleration := range spec.Tolerations {
		keys = append(keys, toleration.Key)
	}
	// A list of one's own takes the place of the default, but the replicas still leave a lost node after seconds.
	want := []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, "node-role.kubernetes.io/master", "example.com/storage"}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("tolerated taints (-want +got):\n%s", diff)
	}
	if spec.SecurityContext == nil || spec.SecurityContext.RunAsNonRoot == nil || !*spec.SecurityContext.RunAsNonRoot {
		t.Errorf("the pods may run as root: %+v", spec.SecurityContext)
	}
}

// TestWithHelmTolerationsOfOnesOwnAreNotDoubled where they name the taints that the chart adds.
func TestWithHelmTolerationsOfOnesOwnAreNotDoubled(t *testing.T) {
	t.Parallel()
	d := deploymentOf(t, rendered(t, `tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 60}]`))
	var seconds []int64
	for _, toleration := range d.Spec.Template.Spec.Tolerations {
		seconds = append(seconds, *toleration.TolerationSeconds)
	}
	slices.Sort(seconds)
	if diff := cmp.Diff([]int64{5, 60}, seconds); diff != "" {
		t.Errorf("seconds (-want +got):\n%s", diff)
	}
}

// TestWithHelmValuesThatCannotBeMeantAreRefused by a sentence that says what to do, or by the schema.
func TestWithHelmValuesThatCannotBeMeantAreRefused(t *testing.T) {
	t.Parallel()
	for values, says := range map[string]string{
		"securityContext: {privileged: true}": "securityContext.privileged: the controller of 2.x",
		"image: {tag: v1.3.3}":                "image.tag: v1.3.3 is an image of 1.x or older",
		"image: {tag: 0.3.0}":                 "image.tag: 0.3.0 is an image of 1.x or older",
		"replica: 3":                          "additional properties 'replica' not allowed",
		"options: {known-grace: 1m}":          "additional properties 'known-grace' not allowed",
		"options: {leader-election: false}":   "additional properties 'leader-election' not allowed",
		"image: {tags: v2}":                   "additional properties 'tags' not allowed",
		"dryRun: perhaps":                     "got string, want boolean",
		"podDisruptionBudget: {minAvailable: 2, maxUnavailable: 1}": "set minAvailable or maxUnavailable, not both",
		"{manageAllPods: true, options: {pod-label-selector: a=b}}": "manageAllPods and options.pod-label-selector both say which pods are moved",
	} {
		t.Run(values, func(t *testing.T) {
			t.Parallel()
			for _, major := range majors {
				out, err := helm(t, major, "template", name, chart, "--values="+valuesFile(t, values)).CombinedOutput()
				if err == nil || !strings.Contains(string(out), says) {
					t.Errorf("%s does not say %q: %v\n%s", major, says, err, out)
				}
			}
		})
	}
}

// TestWithHelmTheSchemaKnowsTheOptionsOfTheProgram and no others, and the chart passes each on.
func TestWithHelmTheSchemaKnowsTheOptionsOfTheProgram(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(chart + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Defs map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(content, &schema); err != nil {
		t.Fatal(err)
	}
	known := schema.Defs["helm-values.options"].Properties
	for _, flag := range options.Flags() {
		if _, ok := known[flag.Name]; ok == flag.NotForChart {
			t.Errorf("option %s is a value of the chart: %t", flag.Name, ok)
		}
	}
	both := slices.Concat(options.Flags(), options.ObsoleteFlags())
	kebab, camel := map[string]string{}, map[string]string{}
	for option := range known {
		if !slices.ContainsFunc(both, func(f options.Flag) bool { return f.Name == kebabCase(option) }) {
			t.Errorf("the program has no option %s", kebabCase(option))
		}
		if option == kebabCase(option) {
			kebab[option] = "1"
		} else {
			camel[option] = "1"
		}
	}
	for _, values := range []map[string]string{kebab, camel} {
		content, err := yaml.Marshal(map[string]any{"options": values})
		if err != nil {
			t.Fatal(err)
		}
		args := deploymentOf(t, rendered(t, string(content))).Spec.Template.Spec.Containers[0].Args
		for option := range values {
			if !slices.Contains(args, "--"+kebabCase(option)+"=1") {
				t.Errorf("option %s is not passed on: %q", option, args)
			}
		}
	}
}

// kebabCase returns a name such as fast-detach for fastDetach.
func kebabCase(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('-')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

// TestWithHelmAReleaseOfAnotherNameIsOfItsOwn renders it for a namespace where another release may be: no name is shared, and the program is told
// the names.
func TestWithHelmAReleaseOfAnotherNameIsOfItsOwn(t *testing.T) {
	t.Parallel()
	all := parseObjects(t, output(t, helm(t, "helm4", "template", "second", chart, "--namespace=piraeus-datastore")))
	first := ids(rendered(t, ""))
	for _, o := range all {
		if ns := o.GetNamespace(); ns != "" && ns != "piraeus-datastore" && ns != corev1.NamespaceNodeLease {
			t.Errorf("%s is in another namespace", id(o))
		}
		if slices.Contains(first, id(o)) {
			t.Errorf("%s is of both releases", id(o))
		}
	}
	o := parsed(t, deploymentOf(t, all).Spec.Template.Spec.Containers[0])
	if !slices.Contains(ids(all), "ClusterRole /second-piraeus-ha-controller-manager") {
		t.Errorf("the roles have other names: %v", ids(all))
	}
	if o.LeaderElectionResourceName != "second-piraeus-ha-controller" {
		t.Errorf("its replicas compete for Lease %q", o.LeaderElectionResourceName)
	}
}

// TestWithHelmTheNetworkPolicyLetsTheControllerReachLinstor also where that has another port.
func TestWithHelmTheNetworkPolicyLetsTheControllerReachLinstor(t *testing.T) {
	t.Parallel()
	for endpoint, port := range map[string]string{
		"https://linstor.example.com:8443":                                "8443",
		"http://[fd00::1]:8080,https://linstor.example.com":               "8080",
		"http://linstor.example.com,https://linstor.example.com:1234/lin": "1234",
		"https://linstor.example.com:3371":                                "",
	} {
		want := []string{"3370/TCP", "3371/TCP", "443/TCP", "6443/TCP", "53/UDP", "53/TCP"}
		if port != "" {
			want = append(want, port+"/TCP")
		}
		var policy networkingv1.NetworkPolicy
		o := byID(rendered(t, "networkPolicy: {enabled: true}\nlinstor: {endpoint: \""+endpoint+"\"}"))["NetworkPolicy "+namespace+"/"+name]
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &policy); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, rule := range policy.Spec.Egress {
			out = append(out, ports(rule.Ports)...)
		}
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("let out to %s (-want +got):\n%s", endpoint, diff)
		}
	}
}

// TestWithHelmMonitoringFollowsTheMetrics where they are served without TLS, and is refused where they are off.
func TestWithHelmMonitoringFollowsTheMetrics(t *testing.T) {
	t.Parallel()
	o := byID(rendered(t, "{monitoring: {enabled: true}, options: {metrics-secure: false}}"))["ServiceMonitor "+namespace+"/"+name]
	endpoints, _, err := unstructured.NestedSlice(o.Object, "spec", "endpoints")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"port": "metrics", "scheme": "http", "interval": "30s"}
	if diff := cmp.Diff([]any{want}, endpoints); diff != "" {
		t.Errorf("endpoints without TLS (-want +got):\n%s", diff)
	}
	out, err := helm(t, "helm4", "template", name, chart, "--set=monitoring.enabled=true,options.metrics-bind-address=0").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "metrics-bind-address switches the metrics off") {
		t.Errorf("monitoring without metrics: %v\n%s", err, out)
	}
}

// TestWithHelmMonitoringIsThatOfTheManifests renders it and compares it with config/extras/monitoring, but for names and labels.
func TestWithHelmMonitoringIsThatOfTheManifests(t *testing.T) {
	t.Parallel()
	base := ids(rendered(t, ""))
	all := rendered(t, "monitoring: {enabled: true, labels: {release: prometheus}, annotations: {grafana_folder: Storage}}")
	want := parseObjects(t, kustomize(t, "resources: [$CONFIG/extras/monitoring]\n"))
	var manifests []string
	for _, o := range want {
		manifests = append(manifests, id(o))
	}
	slices.Sort(manifests)
	if diff := cmp.Diff(manifests, added(base, ids(all))); diff != "" {
		t.Fatalf("objects (-config/extras/monitoring +chart):\n%s", diff)
	}
	got := byID(all)
	for _, o := range want {
		for _, part := range []string{"data", "rules", "spec"} {
			text, err := json.Marshal(got[id(o)].Object[part])
			if err != nil {
				t.Fatal(err)
			}
			var plain any
			if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), `"app.kubernetes.io/instance":"`+name+`",`, "")), &plain); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(asJSON(t, o.Object[part]), plain); diff != "" {
				t.Errorf("%s of %s (-config/extras/monitoring +chart):\n%s", part, id(o), diff)
			}
		}
	}
	for _, kind := range []string{"ServiceMonitor", "PrometheusRule"} {
		o := got[kind+" "+namespace+"/"+name]
		if o.GetLabels()["release"] != "prometheus" || o.GetAnnotations()["grafana_folder"] != "Storage" {
			t.Errorf("%s has labels %v and annotations %v", kind, o.GetLabels(), o.GetAnnotations())
		}
	}
}

// asJSON returns a value with the types that reading JSON gives.
func asJSON(t *testing.T, value any) (plain any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	return plain
}

// TestWithHelmTheNotesSayWhatMatters after an installation.
func TestWithHelmTheNotesSayWhatMatters(t *testing.T) {
	t.Parallel()
	for values, says := range map[string][]string{
		"": {
			"linstor-controller.piraeus-datastore.svc:3370", "linstor.csi.linbit.com/on-storage-lost: remove",
			"exec deploy/piraeus-ha-controller -- /piraeus-ha-controller check\n", "drbd.linbit.com/pause-fail-over=true",
		},
		"manageAllPods: true":                 {"It moves every pod", "drbd.linbit.com/ignore-fail-over"},
		"dryRun: true":                        {"dryRun is set"},
		"fullnameOverride: mine":              {"exec deploy/mine -- /piraeus-ha-controller check"},
		"options: {fail-over-timeout: 10s}":   {"options.fail-over-timeout means nothing any more", "confirmed-loss-grace-period"},
		"options: {drbdStatusInterval: 10s}":  {"options.drbdStatusInterval means nothing any more"},
		"linstor: {endpoint: http://linstor}": {"follows LINSTOR at http://linstor."},
	} {
		t.Run(values, func(t *testing.T) {
			t.Parallel()
			// Helm 3 shows no notes without a cluster.
			cmd := helm(t, "helm4", "install", name, chart, "--namespace="+namespace, "--dry-run=client", "--values="+valuesFile(t, values))
			_, notes, _ := strings.Cut(string(output(t, cmd)), "NOTES:")
			for _, text := range says {
				if !strings.Contains(notes, text) {
					t.Errorf("the notes do not say %q:\n%s", text, notes)
				}
			}
		})
	}
}

// TestTheChartIsOfThisRelease, and Helm looks nothing up: what it renders is the same for Argo CD, which has no cluster to ask.
func TestTheChartIsOfThisRelease(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(chart + "/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var about struct {
		AppVersion, Version, KubeVersion, Icon string
		Annotations                            map[string]string
	}
	if err := yaml.Unmarshal(content, &about); err != nil {
		t.Fatal(err)
	}
	_, c := container(t)
	if _, tag, _ := strings.Cut(c.Image, ":"); about.AppVersion != tag {
		t.Errorf("the chart is for %s, and config/manager has the image %s", about.AppVersion, c.Image)
	}
	if about.KubeVersion == "" || about.Icon == "" || about.Annotations["artifacthub.io/license"] == "" {
		t.Errorf("kubeVersion, icon or annotations are missing: %+v", about)
	}
	templates, err := filepath.Glob(chart + "/templates/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range templates {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), "lookup") {
			t.Errorf("%s looks something up", file)
		}
	}
}
