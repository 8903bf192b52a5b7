package linstor

import (
	"strings"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// setOf tells what the node of a replica may run, the newest last: "off a+b, majority a+b/t" where t has no disk.
func setOf(r Replica) string {
	all := make([]string, 0, len(r.MayRun))
	for _, setting := range r.MayRun {
		all = append(all, settingText(*setting))
	}
	return strings.Join(all, ", ")
}

func settingText(s failover.Setting) string {
	text := s.Quorum + " " + strings.Join(s.Diskful, "+")
	if len(s.Diskless) > 0 {
		text += "/" + strings.Join(s.Diskless, "+")
	}
	return text
}
