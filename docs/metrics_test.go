package docs

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// metricName finds the name in the text of a description, which has no accessor for it.
var metricName = regexp.MustCompile(`fqName: "([a-z_]+)"`)

func TestReadmeListsEveryMetric(t *testing.T) {
	t.Parallel()

	descriptions := make(chan *prometheus.Desc, 100)
	for _, c := range slices.Concat(metrics.New().Collectors(), linstor.NewMetrics().Collectors()) {
		c.Describe(descriptions)
	}

	close(descriptions)

	var want []string
	for d := range descriptions {
		want = append(want, metricName.FindStringSubmatch(d.String())[1])
	}

	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, match := range regexp.MustCompile("(?m)^\\| `(piraeus_ha_controller_[a-z_]+)` \\| \\S").FindAllSubmatch(readme, -1) {
		got = append(got, string(match[1]))
	}

	slices.Sort(want)
	slices.Sort(got)

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics in README.md (-want +got):\n%s", diff)
	}
}
