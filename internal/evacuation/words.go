package evacuation

import (
	"fmt"
	"strings"
)

// sumUp says in one reason and one sentence what is so of all volumes. As long as a copy is on its way that is the reason; then the first
// of those that wait for somebody.
func sumUp(states []VolumeState) (Reason, string) {
	counts := make(map[Reason]int)
	var copying, blocked *VolumeState
	for i := range states {
		v := &states[i]
		counts[v.Reason]++
		switch {
		case v.Reason == CopiedElsewhere:
		case v.Reason != Copying:
			if blocked == nil {
				blocked = v
			}
		case copying == nil || v.Done > copying.Done:
			copying = v
		}
	}
	switch {
	case copying != nil:
		message := fmt.Sprintf("%d of %d volumes have a copy elsewhere", counts[CopiedElsewhere], len(states))
		if copying.Done >= 0 {
			message += fmt.Sprintf(", %s %.0f %%", copying.name(), copying.Done)
		}
		if blocked != nil {
			message += fmt.Sprintf("; %s: %s", blocked.name(), blocked.Message)
		}
		return Copying, message
	case blocked != nil:
		message := fmt.Sprintf("%s: %s", blocked.name(), blocked.Message)
		if n := len(states) - counts[CopiedElsewhere] - 1; n > 0 {
			message += fmt.Sprintf("; and %d more", n)
		}
		return blocked.Reason, message
	}
	return CopiedElsewhere, safeMessage(states)
}

func safeMessage(states []VolumeState) string {
	switch len(states) {
	case 0:
		return "it has no volume"
	case 1:
		return "its volume has a good copy elsewhere"
	}
	return fmt.Sprintf("all %d volumes have a good copy elsewhere", len(states))
}

// counted says how many there are of something.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// joinedWords are those that are not empty, with commas.
func joinedWords(parts ...string) string {
	var all []string
	for _, p := range parts {
		if p != "" {
			all = append(all, p)
		}
	}
	return strings.Join(all, ", ")
}
