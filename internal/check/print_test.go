package check

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
)

func TestTable(t *testing.T) {
	t.Parallel()
	long := forecast.Finding{Severity: forecast.Warning, Code: forecast.DRBDOption, Message: "an option is not as it should be", Remedy: "set it"}
	for i := range 12 {
		long.Objects = append(long.Objects, fmt.Sprintf("pvc-%02d", i))
	}
	r := forecast.Report{
		Verdict: failover.Unprotected, Message: "some would not survive",
		Volumes: []forecast.Row{
			{
				Namespace: "databases", Pod: "orders-postgresql-primary-cluster-0", Node: "worker-17.rack-3.example.com", Claim: "data",
				Resource: "pvc-0f9d3a52-6a1f-4d28-9c53-3f1b2f8e7a10", Diskful: 2, Diskless: 1, Quorum: "majority",
				State: failover.PrimaryUp, Verdict: failover.Protected, Reason: failover.PrimaryHealthy, Grace: "5s",
			},
			{
				Namespace: "default", Pod: "web-0", Claim: "data", Verdict: failover.Starting, Reason: failover.VolumeStarting,
			},
		},
		Findings: []forecast.Finding{long},
	}
	want := strings.Join([]string{
		"POD                             RESOURCE          NODE              REPLICAS  QUORUM    STATE           VERDICT       REASON",
		"databases/orders-po…-cluster-0  pvc-0f9d3a…e7a10  worker-17.…e.com  2+1       majority  PrimaryHealthy  Protected 5s  -",
		"default/web-0                   -                 -                 -         -         -               Starting      VolumeStarting",
		"",
		"WARNING DRBDOption: an option is not as it should be",
		"  - pvc-00", "  - pvc-01", "  - pvc-02", "  - pvc-03", "  - pvc-04", "  - pvc-05", "  - pvc-06", "  - pvc-07", "  - pvc-08", "  - pvc-09",
		"  - and 2 more, see -o yaml",
		"  Remedy: set it",
		"",
		"Some would not survive.",
		"",
	}, "\n")
	if diff := cmp.Diff(want, string(table(r))); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}
