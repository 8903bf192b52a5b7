package scenarios_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/check"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// tellsTheCrash asks the plugin of kubectl, as whoever is on call does, what became of a volume whose node was lost and is back.
func tellsTheCrash(s *bedtest.Scenario, volume, lost string) {
	s.T.Helper()
	root, err := bed.Root()
	s.Must(err)
	plugin := filepath.Join(s.T.TempDir(), "kubectl-piraeus_ha")
	s.Must(os.Symlink(filepath.Join(root, "bin", "piraeus-ha-controller"), plugin))
	var told check.History
	waitUntil(s, "the Events to tell of the fail-over of "+volume, func() bool {
		cmd := exec.CommandContext(s.Ctx, plugin, "check", "--events", "--kubeconfig", s.Kubeconfig, "-n", s.Name, "-o", "json")
		cmd.Stderr = os.Stderr
		out, _ := cmd.Output() // the status says that something is open
		told = check.History{}
		s.Must(json.Unmarshal(out, &told))
		return len(told.Failovers) == 1 && len(told.Failovers[0].Steps) == 3
	})
	f := told.Failovers[0]
	if f.Volume != volume || f.From != lost || f.To == "" || f.To == lost || f.Reason == "" || f.Message == "" || len(f.Open) > 0 {
		s.T.Errorf("check --events tells %+v", told)
	}
}
