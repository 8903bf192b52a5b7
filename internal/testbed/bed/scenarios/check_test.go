package scenarios_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/check"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// The command, run with the permissions of the shipped ServiceAccount and nothing more, tells protected workloads from
// others, before anything is lost.
func TestCheck(t *testing.T) {
	t.Parallel()
	s := bedtest.New(t, bedtest.Shared(t), 3)
	s.Start(s.Workload("db"))
	report, status := runCheck(s, accountKubeconfig(s), s.LINSTORURL())
	if status != check.StatusProtected || len(report.Volumes) != 1 || len(report.Findings) != 0 {
		t.Errorf("exit status %d for a protected workload, report %+v", status, report)
	}

	w := s.Workload("alone")
	w.Volumes[0].Nodes = s.Nodes[:2]
	w.Nodes = s.Nodes[:2]
	w.Volumes[0].Quorum = "majority"
	s.Start(w)
	report, status = runCheck(s, accountKubeconfig(s), s.LINSTORURL())
	if status != check.StatusUnprotected || len(report.Volumes) != 2 || report.Volumes[0].Reason != failover.NoSurvivor {
		t.Errorf("exit status %d beside a workload without tie-breaker, report %+v", status, report)
	}
	if len(report.Findings) != 2 || report.Findings[0].Code != check.Code(failover.NoSurvivor) || report.Findings[1].Code != check.NoTieBreaker {
		t.Errorf("findings %+v, want that nobody could take over, since the tie-breaker is missing", report.Findings)
	}
}

// An account that may read nothing is told so at once.
func TestCheckWithoutPermissions(t *testing.T) {
	t.Parallel()
	s := bedtest.New(t, bedtest.Shared(t), 0)
	report, status := runCheck(s, kubeconfig(s, "kube-system", "default"), s.LINSTORURL())
	if status != check.StatusUnknown || len(report.Findings) == 0 || report.Findings[0].Code != check.KubernetesUnreadable {
		t.Errorf("exit status %d, report %+v, want that the API cannot be read", status, report)
	}
}

// runCheck runs the command for the scenario's namespace.
func runCheck(s *bedtest.Scenario, kubeconfig, linstor string) (check.Report, check.Status) {
	s.T.Helper()
	out, problems, status := checkPrints(s, kubeconfig, linstor, "json")
	if problems != "" {
		s.T.Errorf("the check writes to standard error: %s", problems)
	}
	var report check.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		s.T.Fatalf("the report is no JSON: %v\n%s", err, out)
	}
	// On a bed that others share there is always a node without a replica, and nothing that keeps a pod from it; and others lose nodes.
	report.Findings = slices.DeleteFunc(report.Findings, func(f check.Finding) bool {
		own := func(object string) bool { return strings.HasPrefix(object, s.Name+"-") }
		return f.Code == check.RemoteAccess || f.Code == check.AttachWaits && !slices.ContainsFunc(f.Objects, own)
	})
	return report, status
}

// checkPrints runs the command with all planted credentials, and returns what it printed in a format. It tells none of them.
func checkPrints(s *bedtest.Scenario, kubeconfig, linstor, format string) (out, problems string, status check.Status) {
	s.T.Helper()
	root, err := bed.Root()
	s.Must(err)
	cmd := exec.CommandContext(s.Ctx, filepath.Join(root, "bin", "piraeus-ha-controller"),
		"check", "--kubeconfig="+kubeconfig, "--namespace="+s.Name, "-o", format)
	planted, err := bed.SecretEnv(strings.TrimPrefix(linstor, "http://"), filepath.Join(s.T.TempDir(), "token"))
	s.Must(err)
	for name, value := range planted {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var printed, complained bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &complained
	err = cmd.Run()
	if exit, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed || failed && exit.ExitCode() < 0 {
		s.T.Fatal(err)
	}
	if told := append(bed.Told(printed.Bytes()), bed.Told(complained.Bytes())...); len(told) > 0 {
		s.T.Errorf("the check tells the %s", strings.Join(told, ", "))
	}
	return printed.String(), complained.String(), check.Status(cmd.ProcessState.ExitCode())
}

// accountKubeconfig returns a kubeconfig of the controller's ServiceAccount.
func accountKubeconfig(s *bedtest.Scenario) string {
	s.T.Helper()
	return kubeconfig(s, bed.ControllerNamespace, "ha-controller")
}

// kubeconfig writes a kubeconfig of a ServiceAccount.
func kubeconfig(s *bedtest.Scenario, namespace, account string) string {
	s.T.Helper()
	clients, err := kubernetes.NewForConfig(s.Config)
	s.Must(err)
	token, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(s.Ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	s.Must(err)
	path := filepath.Join(s.T.TempDir(), "kubeconfig")
	const name = "testbed"
	s.Must(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: s.Config.Host, CertificateAuthorityData: s.Config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, path))
	return path
}
