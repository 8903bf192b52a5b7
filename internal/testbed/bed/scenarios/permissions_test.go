package scenarios_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// verb is one verb of a role on one resource.
type verb struct{ namespace, group, resource, verb string }

func (v verb) String() string {
	return strings.Trim(v.namespace+"/"+v.group+"/"+v.resource+" "+v.verb, "/")
}

// missedElsewhere are the verbs whose absence another test shows: TestFaultsOfPermissions those that a fail-over needs.
var missedElsewhere = []verb{
	{"ha-controller", "apps", "deployments", "get"},
	{"", "", "nodes", "get"},
	{"", "", "nodes", "patch"},
	{"", "", "nodes/status", "patch"},
	{"", "", "pods", "delete"},
	{"", "storage.k8s.io", "volumeattachments", "delete"},
	{"", "storage.k8s.io", "volumeattachments", "get"},
	{"", "storage.k8s.io", "volumeattachments", "patch"},
	// TestTheDeploymentThatPausesIsTheOwn.
	{"ha-controller", "", "pods", "get"},
	{"ha-controller", "apps", "replicasets", "get"},
	// TestAPodThatFinalizersKeepGoesWithoutItsCondition.
	{"", "", "pods/status", "patch"},
	// TestAClaimOrPersistentVolumeThatCannotBeReadIsTold.
	{"", "", "persistentvolumeclaims", "get"},
	{"", "", "persistentvolumes", "get"},
	// TestEventsThatCannotBeWritten.
	{"", "events.k8s.io", "events", "create"},
	{"", "events.k8s.io", "events", "patch"},
	// TestWithoutTheLeasesOfKubelets, and the command check reads the Lease of each node, see TestCheckWithoutPermissions.
	{"kube-node-lease", "coordination.k8s.io", "leases", "get"},
}

// TestEachVerbIsNeeded takes one verb after the other from the shipped roles, and runs the program without it: it says what
// it may not do, by verb and resource, and does not end because of it.
func TestEachVerbIsNeeded(t *testing.T) {
	t.Parallel()
	s := bedtest.New(t, bedtest.Shared(t), 0)
	roles := shippedRoles(s)
	var all []verb
	for _, role := range roles {
		for _, rule := range role.Rules {
			for _, v := range rule.Verbs {
				for _, resource := range rule.Resources {
					all = append(all, verb{role.Namespace, rule.APIGroups[0], resource, v})
				}
			}
		}
	}
	for _, v := range missedElsewhere {
		if !slices.Contains(all, v) {
			t.Errorf("%s is in no role", v)
		}
	}
	for i, missing := range all {
		if slices.Contains(missedElsewhere, missing) {
			continue
		}
		account := fmt.Sprintf("without-%d", i)
		s.Must(s.Client.Create(s.Ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: bed.ControllerNamespace, Name: account}}))
		for _, role := range roles {
			grantWithout(s, account, role, missing)
		}
		said := runAs(s, account, missing)
		if word := said.lacks(); word != "" {
			text := said.String()
			t.Errorf("without %s the program does not say %q:\n%s", missing, word, text[max(0, len(text)-500):])
		}
		if said.starts > 1 {
			t.Errorf("without %s the program ended %d times", missing, said.starts-1)
		}
	}
}

// shippedRoles returns the roles of the manifest; the cluster role has no namespace.
func shippedRoles(s *bedtest.Scenario) []rbacv1.Role {
	s.T.Helper()
	root, err := bed.Root()
	s.Must(err)
	content, err := os.ReadFile(filepath.Join(root, "config", "rbac", "role.yaml"))
	s.Must(err)
	var roles []rbacv1.Role
	for document := range bytes.SplitSeq(content, []byte("---\n")) {
		var role rbacv1.Role
		if len(bytes.TrimSpace(document)) > 0 {
			s.Must(yaml.Unmarshal(document, &role))
			roles = append(roles, role)
		}
	}
	if len(roles) != 3 {
		s.T.Fatalf("%d roles, want 3", len(roles))
	}
	return roles
}

// grantWithout gives an account a role but for one verb.
func grantWithout(s *bedtest.Scenario, account string, role rbacv1.Role, missing verb) {
	s.T.Helper()
	var rules []rbacv1.PolicyRule
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			verbs := slices.DeleteFunc(slices.Clone(rule.Verbs), func(v string) bool {
				return missing == verb{role.Namespace, rule.APIGroups[0], resource, v}
			})
			if len(verbs) > 0 {
				rules = append(rules, rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: []string{resource}, Verbs: verbs})
			}
		}
	}
	meta := metav1.ObjectMeta{Namespace: role.Namespace, Name: account}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: bed.ControllerNamespace, Name: account}}
	var granted, binding client.Object = &rbacv1.Role{ObjectMeta: meta, Rules: rules}, &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
	}
	if role.Namespace == "" {
		granted, binding = &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
		}
	}
	s.Must(s.Client.Create(s.Ctx, granted))
	s.Must(s.Client.Create(s.Ctx, binding))
}

// runAs runs the program with the rights of an account, asks it for metrics, and returns what it has said as soon as it
// says that what is missing is forbidden, or after a while. Where the program ends, it is started again.
func runAs(s *bedtest.Scenario, account string, missing verb) *forbids {
	s.T.Helper()
	const patience = 45 * time.Second
	ctx, cancel := context.WithTimeout(s.Ctx, patience)
	defer cancel()
	// Not as soon as anything is forbidden: the API server takes a moment to know of the roles.
	said := &forbids{enough: cancel, words: []string{"cannot " + missing.verb + " resource", missing.resource, account}}
	for ctx.Err() == nil {
		said.starts++
		runOnce(ctx, s, account, missing, said)
	}
	return said
}

// runOnce runs the program until it ends, or ctx does.
func runOnce(ctx context.Context, s *bedtest.Scenario, account string, missing verb, said *forbids) {
	s.T.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	root, err := bed.Root()
	s.Must(err)
	address := freeAddress(s)
	_, healthz, _ := net.SplitHostPort(freeAddress(s))
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "piraeus-ha-controller"),
		"--kubeconfig="+kubeconfig(s, bed.ControllerNamespace, account), "--metrics-bind-address="+address,
		"--leader-election-healtz-port="+healthz, "--leader-election", "--leader-election-namespace="+bed.ControllerNamespace,
		"--leader-election-resource-name="+account, "--leader-election-lease-name="+account,
		"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms",
		"--recover-pod-selector=app=none")
	cmd.Env = []string{"LS_CONTROLLERS=" + s.LINSTORURL()}
	if missing.verb == "list" {
		// An API server of this release sends lists as watches; older ones do not.
		cmd.Env = append(cmd.Env, "KUBE_FEATURE_WatchListClient=false")
	}
	cmd.Stdout, cmd.Stderr = said, said
	token := tokenOf(s, account)
	s.Must(cmd.Start())
	go askForMetrics(ctx, "https://"+address+"/metrics", token)
	_ = cmd.Wait()
}

// forbids collects what is said, until there are all words in it.
type forbids struct {
	words  []string
	enough func()
	// starts is how often the program was started, of one goroutine only.
	starts int

	mu   sync.Mutex
	text bytes.Buffer
}

func (f *forbids) Write(p []byte) (int, error) {
	f.mu.Lock()
	n, err := f.text.Write(p)
	f.mu.Unlock()
	if f.lacks() == "" {
		f.enough()
	}
	return n, err
}

// lacks returns a word that was not said, empty if all were.
func (f *forbids) lacks() string {
	text := f.String()
	for _, word := range f.words {
		if !strings.Contains(text, word) {
			return word
		}
	}
	return ""
}

func (f *forbids) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.ReplaceAll(f.text.String(), `\"`, `"`)
}

func freeAddress(s *bedtest.Scenario) string {
	s.T.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.Must(err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func tokenOf(s *bedtest.Scenario, account string) string {
	s.T.Helper()
	clients, err := kubernetes.NewForConfig(s.Config)
	s.Must(err)
	token, err := clients.CoreV1().ServiceAccounts(bed.ControllerNamespace).
		CreateToken(s.Ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	s.Must(err)
	return token.Status.Token
}

// askForMetrics asks until the context ends.
func askForMetrics(ctx context.Context, url, token string) {
	// The certificate of the metrics is self-signed, and nothing secret is said
	http := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: time.Second}
	defer http.CloseIdleConnections()
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		request, err := newRequest(ctx, url, token)
		if err != nil {
			return
		}
		if response, err := http.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}
}

func newRequest(ctx context.Context, url, token string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err == nil {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return request, err
}
