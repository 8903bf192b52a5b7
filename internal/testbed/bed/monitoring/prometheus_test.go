// Package monitoring_test has a real Prometheus watch the controller on the test bed by the shipped rules, and looks at what it says
// while things break.
package monitoring_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

const (
	// job is what the shipped monitors call the controller.
	job = "piraeus-ha-controller"
	// reader is the shipped role that lets an account read metrics.
	reader = "piraeus-ha-controller-metrics-reader"
	// longest is how long a rule may have to hold here before its alert fires: nobody waits for hours. promtool tests the real times.
	longest = 15 * time.Second
	// scraped is how often the metrics are read and the rules evaluated.
	scraped = 5 * time.Second
)

// prometheus is a running one.
type prometheus struct {
	promv1.API

	dir string
}

// startPrometheus starts one that reads the metrics of the controller's replicas, by HTTPS and as an account that has the shipped role,
// and evaluates the rules. It ends with the test.
func startPrometheus(t *testing.T, b *bed.Bed, rules []byte) *prometheus {
	t.Helper()
	root, err := bed.Root()
	must(t, err)
	dir := t.TempDir()
	address := freeAddress(t)
	config := fmt.Sprintf(`
global: {scrape_interval: %[1]s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: %[2]s
    scheme: https
    authorization: {credentials_file: token}
    tls_config: {insecure_skip_verify: true}
    file_sd_configs: [{files: [targets.json], refresh_interval: 2s}]
`, scraped, job)
	for name, text := range map[string]string{
		"prometheus.yaml": config, "rules.yaml": string(patient(t, rules)), "token": readerToken(t, b), "targets.json": "[]",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	said, err := os.Create(filepath.Join(b.LogDir, "prometheus.log"))
	must(t, err)
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin", "prometheus"),
		"--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; run `make bin/prometheus` first", err)
	}
	t.Cleanup(func() { _ = cmd.Wait(); _ = said.Close() }) // its context has ended by then
	connection, err := api.NewClient(api.Config{Address: "http://" + address})
	must(t, err)
	p := &prometheus{API: promv1.NewAPI(connection), dir: dir}
	go p.follow(t.Context(), b)
	return p
}

// patient returns the rules with shorter times.
func patient(t *testing.T, rules []byte) []byte {
	t.Helper()
	var rule struct {
		Spec struct {
			Groups []struct {
				Name  string           `json:"name"`
				Rules []map[string]any `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	must(t, yaml.Unmarshal(rules, &rule))
	for _, group := range rule.Spec.Groups {
		for _, r := range group.Rules {
			if r["for"] != nil {
				r["for"] = longest.String()
			}
		}
	}
	text, err := yaml.Marshal(rule.Spec)
	must(t, err)
	return text
}

// follow tells Prometheus which replicas there are, as its service discovery does in a cluster.
func (p *prometheus) follow(ctx context.Context, b *bed.Bed) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for ctx.Err() == nil {
		var pods corev1.PodList
		if err := b.Client.List(ctx, &pods, client.InNamespace(bed.ControllerNamespace)); err == nil {
			p.tell(pods.Items, b.ControllerProcesses())
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (p *prometheus) tell(pods []corev1.Pod, processes []bed.ControllerProcess) {
	type target struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	targets := []target{}
	for _, process := range processes {
		if slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Name == process.Pod }) {
			address := strings.TrimSuffix(strings.TrimPrefix(process.MetricsURL, "http://"), "/metrics")
			targets = append(targets, target{[]string{address}, map[string]string{"namespace": bed.ControllerNamespace, "pod": process.Pod}})
		}
	}
	text, err := json.Marshal(targets)
	if err == nil {
		name := filepath.Join(p.dir, "targets.json")
		if os.WriteFile(name+".tmp", text, 0o600) == nil {
			_ = os.Rename(name+".tmp", name)
		}
	}
}

// firing tells whether an alert fires.
func (p *prometheus) firing(ctx context.Context, name string) (bool, error) {
	all, err := p.Alerts(ctx)
	return err == nil && slices.ContainsFunc(all.Alerts, func(a promv1.Alert) bool {
		return a.State == promv1.AlertStateFiring && string(a.Labels["alertname"]) == name
	}), err
}

// ask returns the answer to a query, of the end of a range or over all of it.
func (p *prometheus) ask(ctx context.Context, query string, instant bool, over promv1.Range) (answer model.Value, err error) {
	if instant {
		answer, _, _, err = p.Query(ctx, query, over.End)
	} else {
		answer, _, _, err = p.QueryRange(ctx, query, over)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	return answer, nil
}

// empty tells whether an answer has no number.
func empty(answer model.Value) bool {
	number := func(v model.SampleValue) bool { return !math.IsNaN(float64(v)) }
	switch a := answer.(type) {
	case model.Vector:
		return !slices.ContainsFunc(a, func(s *model.Sample) bool { return number(s.Value) })
	case model.Matrix:
		return !slices.ContainsFunc(a, func(s *model.SampleStream) bool {
			return slices.ContainsFunc(s.Values, func(p model.SamplePair) bool { return number(p.Value) })
		})
	default:
		return true
	}
}

// readerToken returns a token of an account that the shipped role lets read metrics.
func readerToken(t *testing.T, b *bed.Bed) string {
	t.Helper()
	const account = "prometheus"
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: account}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: reader}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: reader},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: account}},
		},
	} {
		must(t, b.Client.Create(t.Context(), o))
	}
	clients, err := kubernetes.NewForConfig(b.Config)
	must(t, err)
	token, err := clients.CoreV1().ServiceAccounts("default").CreateToken(
		t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	return token.Status.Token
}

func freeAddress(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
