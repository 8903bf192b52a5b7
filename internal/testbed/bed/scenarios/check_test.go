package scenarios_test

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/check"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// The command tells protected workloads from others, before anything is lost. The controller answers with the permissions of the shipped ServiceAccount
// and nothing more.
func TestCheck(t *testing.T) {
	t.Parallel()
	s := bedtest.New(t, bedtest.Shared(t), 3)
	s.Start(s.Workload("db"))
	report, status := runCheck(s)
	if status != check.StatusProtected || len(report.Volumes) != 1 || len(report.Findings) != 0 {
		t.Errorf("exit status %d for a protected workload, report %+v", status, report)
	}

	w := s.Workload("alone")
	w.Volumes[0].Nodes = s.Nodes[:2]
	w.Nodes = s.Nodes[:2]
	w.Volumes[0].Quorum = "majority"
	s.Start(w)
	report, status = runCheck(s)
	if status != check.StatusUnprotected || len(report.Volumes) != 2 || report.Volumes[0].Reason != failover.NoSurvivor {
		t.Errorf("exit status %d beside a workload without tie-breaker, report %+v", status, report)
	}
	if len(report.Findings) != 2 || report.Findings[0].Code != forecast.Code(failover.NoSurvivor) || report.Findings[1].Code != forecast.NoTieBreaker {
		t.Errorf("findings %+v, want that nobody could take over, since the tie-breaker is missing", report.Findings)
	}
}

// runCheck runs the command for the scenario's namespace.
func runCheck(s *bedtest.Scenario) (forecast.Report, check.Status) {
	s.T.Helper()
	out, problems, status := checkPrints(s, "json")
	if problems != "" {
		s.T.Errorf("the check writes to standard error: %s", problems)
	}
	report, err := forecast.Decode(strings.NewReader(out))
	if err != nil {
		s.T.Fatalf("%v\n%s", err, out)
	}
	// On a bed that others share there is always a node without a replica, and nothing that keeps a pod from it; and others lose nodes.
	report.Findings = slices.DeleteFunc(report.Findings, func(f forecast.Finding) bool {
		own := func(object string) bool { return strings.HasPrefix(object, s.Name+"-") }
		return f.Code == forecast.RemoteAccess || f.Code == forecast.AttachWaits && !slices.ContainsFunc(f.Objects, own)
	})
	return report, status
}

// checkPrints runs the command where the leader runs, and returns what it printed in a format. It tells no planted credential.
func checkPrints(s *bedtest.Scenario, format string) (out, problems string, status check.Status) {
	s.T.Helper()
	root, err := bed.Root()
	s.Must(err)
	cmd := exec.CommandContext(s.Ctx, filepath.Join(root, "bin", "piraeus-ha-controller"), "check", "--namespace="+s.Name, "-o", format)
	cmd.Env = []string{forecastsOfLeader(s)}
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

// forecastsOfLeader is the environment variable by which the command asks the leader: all processes of the bed are on one host.
func forecastsOfLeader(s *bedtest.Scenario) (env string) {
	s.T.Helper()
	waitUntil(s, "the leader to answer", func() bool {
		for _, p := range s.ControllerProcesses() {
			report, err := forecast.Ask(s.Ctx, p.ForecastPort, forecast.Question{Namespace: s.Name})
			if err == nil && report.Process.Leads {
				env = "FORECAST_PORT=" + strconv.Itoa(p.ForecastPort)
				return true
			}
		}
		return false
	})
	return env
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
