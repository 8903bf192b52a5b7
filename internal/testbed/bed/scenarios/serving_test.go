package scenarios_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// Metrics are for those whom Kubernetes authorizes, and for nobody else.
func TestMetricsAreForTheAuthorized(t *testing.T) {
	t.Parallel()
	s := bedtest.New(t, bedtest.Shared(t), 0)
	p := anyProcess(s)
	stranger, reader := accountToken(t, s.Bed, "default", s.Name+"-stranger"), metricsToken(t, s.Bed, s.Name+"-reader")
	for name, tc := range map[string]struct {
		url, token string
		want       int
	}{
		"who shows no token":                   {metricsAddress(p), "", http.StatusUnauthorized},
		"who shows a token of nobody":          {metricsAddress(p), "nonsense", http.StatusInternalServerError}, // so does the library
		"an account without the role":          {metricsAddress(p), stranger, http.StatusForbidden},
		"an account with the role":             {metricsAddress(p), reader, http.StatusOK},
		"who looks for the profiler there":     {strings.Replace(metricsAddress(p), "/metrics", "/debug/pprof/", 1), reader, http.StatusNotFound},
		"who looks for metrics at the probes":  {p.ProbesURL + "/metrics", reader, http.StatusNotFound},
		"who looks for the profiler there too": {p.ProbesURL + "/debug/pprof/", reader, http.StatusNotFound},
	} {
		// What the roles allow takes a moment to be known, and a process that has just started one to serve metrics.
		var answer answer
		waiting, cancel := context.WithTimeout(s.Ctx, 20*time.Second)
		err := s.WaitFor(waiting, name, func() (bool, error) {
			var err error
			answer, err = ask(waiting, tc.url, tc.token)
			return answer.code == tc.want, err
		})
		cancel()
		if err != nil {
			t.Errorf("answered %+v, want %d: %v", answer, tc.want, err)
			continue
		}
		if has := strings.Contains(answer.body, "piraeus_ha_controller_"); has != (tc.want == http.StatusOK) {
			t.Errorf("%s: answered %d, with metrics: %t", name, answer.code, has)
		}
	}
	waiting, cancel := context.WithTimeout(s.Ctx, 2*time.Second)
	defer cancel()
	if answer, err := ask(waiting, p.MetricsURL, reader); err == nil && answer.code < http.StatusBadRequest {
		t.Errorf("without TLS it is answered %+v", answer)
	}
}

// Who is not on the node itself reaches no profiler: the program does not begin to serve one there.
func TestTheProfilerIsOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	s := bedtest.New(t, bedtest.Shared(t), 0)
	root, err := bed.Root()
	s.Must(err)
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		ctx, cancel := context.WithTimeout(s.Ctx, 10*time.Second)
		cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "piraeus-ha-controller"),
			"--kubeconfig="+accountKubeconfig(s), "--pprof-bind-address="+address)
		said, err := cmd.CombinedOutput()
		if err == nil || ctx.Err() != nil || !strings.Contains(string(said), "--pprof-bind-address") {
			t.Errorf("with a profiler on %s the program ends by %v and says %s", address, err, said)
		}
		cancel()
	}
}

// Probes answer whether, and with "verbose" which of the program's own two conditions is not met: no more, whatever is asked.
func TestProbesTellWhetherOnly(t *testing.T) {
	t.Parallel()
	s := bedtest.New(t, bedtest.Shared(t), 0)
	p := anyProcess(s)
	for path, want := range map[string]answer{
		"/healthz":                         {http.StatusOK, "ok"},
		"/readyz":                          {http.StatusOK, "ok"},
		"/readyz?x=%0a%25s../../etc":       {http.StatusOK, "ok"},
		"/healthz?verbose":                 {http.StatusOK, "[+]ping ok\nhealthz check passed\n"},
		"/readyz?verbose":                  {http.StatusOK, "[+]cache ok\n[+]permissions ok\nhealthz check passed\n"},
		"/healthz/../../etc/passwd":        {http.StatusNotFound, "404 page not found\n"},
		"/":                                {http.StatusNotFound, "404 page not found\n"},
		"/healthz/%2e%2e/%2e%2e/etc/hosts": {http.StatusNotFound, "404 page not found\n"},
	} {
		got, err := ask(s.Ctx, p.ProbesURL+path, "")
		s.Must(err)
		if got != want {
			t.Errorf("%s is answered with %+v, want %+v", path, got, want)
		}
	}
}

// anyProcess returns a process of the controller, which the shared bed keeps running.
func anyProcess(s *bedtest.Scenario) bed.ControllerProcess {
	s.T.Helper()
	all := s.ControllerProcesses()
	if len(all) == 0 {
		s.T.Fatal("no process of the controller runs")
	}
	return all[0]
}

// metricsAddress is where a process serves metrics by HTTPS, as it does unless it is told otherwise.
func metricsAddress(p bed.ControllerProcess) string {
	return "https" + strings.TrimPrefix(p.MetricsURL, "http")
}

// answer is what was answered.
type answer struct {
	code int
	body string
}

// ask asks once, with a token if it is not empty. The certificate of the metrics is self-signed.
func ask(ctx context.Context, url, token string) (answer, error) {
	http := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: 10 * time.Second}
	defer http.CloseIdleConnections()
	request, err := newRequest(ctx, url, token)
	if err != nil {
		return answer{}, err
	}
	if token == "" {
		request.Header.Del("Authorization")
	}
	response, err := http.Do(request)
	if err != nil {
		return answer{}, fmt.Errorf("ask: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, string(body)}, err
}

// metricsToken returns a token of a new account that may read metrics.
func metricsToken(t *testing.T, b *bed.Bed, account string) string {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "metrics-" + account}
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics", "/debug/pprof/"}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: account}},
		},
	} {
		if err := client.IgnoreAlreadyExists(b.Client.Create(t.Context(), o)); err != nil {
			t.Fatal(err)
		}
	}
	return accountToken(t, b, "default", account)
}

// accountToken returns a token of a new account that may do nothing by itself.
func accountToken(t *testing.T, b *bed.Bed, namespace, account string) string {
	t.Helper()
	o := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := client.IgnoreAlreadyExists(b.Client.Create(t.Context(), o)); err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(b.Config)
	if err != nil {
		t.Fatal(err)
	}
	token, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}
