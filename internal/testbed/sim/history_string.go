package sim

import (
	"fmt"
	"strings"
	"time"
)

// String tells the history as a story.
func (h History) String() string {
	var b strings.Builder
	w := h.World
	fmt.Fprintf(&b, "nodes %s; %d controllers", strings.Join(w.Nodes, " "), w.Processes)
	if w.DryRun {
		b.WriteString(", dry run")
	}
	if w.Reckless {
		b.WriteString(", unsafe pods may be moved")
	}
	if w.Patient {
		b.WriteString(", unanimous grace off")
	}
	fmt.Fprintf(&b, "; cache lags %s; LINSTOR notices after %s, replays after %s; DRBD notices after %v\n",
		w.Lag, w.PingTimeout, w.Replay, w.Detect)
	b.WriteString(w.untidy())
	for _, v := range w.Volumes {
		fmt.Fprintf(&b, "volume %s: %s, handle %s, disks on %s", v.Name, v.Kind, v.Handle, strings.Join(v.Diskful, " "))
		if v.TieBreaker != "" {
			b.WriteString(", tie-breaker on " + v.TieBreaker)
		}
		if v.Quorum != "" {
			b.WriteString(", quorum " + v.Quorum)
		}
		if v.Claim != "" {
			b.WriteString(", claim " + v.Claim)
		}
		if v.Released != "" {
			b.WriteString(", Released, its resource " + v.Released)
		}
		if v.Shared {
			b.WriteString(", shared")
		}
		if v.TwoPrimaries {
			b.WriteString(", two Primaries allowed")
		}
		if v.Pinned {
			b.WriteString(", pinned to its disks")
		}
		b.WriteString("\n")
	}
	for _, p := range w.Workloads {
		fmt.Fprintf(&b, "pod %s: volumes %s, prefers %s", p.Name, strings.Join(p.Volumes, " "), strings.Join(p.Nodes, " "))
		for word, is := range map[string]bool{
			"not selected": !p.Selected, "exempt": p.Exempt, "owner " + p.Owner: p.Owner != "", "unsafe": p.Unsafe,
			"finalizer": p.Finalizer, "stops in " + p.Stop.String(): p.Stop > time.Second,
			"init containers for " + p.Init.String(): p.Init > 0, "tolerates everything": p.Tolerant,
			"with an ephemeral volume": p.Ephemeral, "with a helper": p.Helper && !p.HelperSelected,
			"with a helper that is selected": p.Helper && p.HelperSelected, "which holds " + p.HotPlugged: p.HotPlugged != "",
		} {
			if is {
				b.WriteString(", " + word)
			}
		}
		b.WriteString("\n")
	}
	for i, s := range h.Steps {
		fmt.Fprintf(&b, "%3d %s\n", i, s)
	}
	fmt.Fprintf(&b, "    %8s  all is mended", h.Length)
	return b.String()
}

// String is a line of the story.
func (s Step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%8s  %s", s.At, s.What)
	for _, word := range []string{s.On, s.Node, s.Peer, s.Value} {
		if word != "" {
			b.WriteString(" " + word)
		}
	}
	if s.For != 0 {
		fmt.Fprintf(&b, " (%s)", s.For)
	}
	return b.String()
}

// untidy tells what is untidy about the world beside its volumes and workloads.
func (world World) untidy() string {
	var b strings.Builder
	if world.Qualified {
		b.WriteString("nodes have qualified names in Kubernetes\n")
	}
	if len(world.Foreign) > 0 {
		fmt.Fprintf(&b, "LINSTOR does not know %s\n", strings.Join(world.Foreign, " "))
	}
	if len(world.Pings)+len(world.Links) > 0 {
		fmt.Fprintf(&b, "LINSTOR notices each after %v, DRBD after %v\n", world.Pings, world.Links)
	}
	if world.Flap > 0 {
		fmt.Fprintf(&b, "survivors flap for %s, at a heal for %s\n", world.Flap, world.HealFlap)
	}
	if world.TieBreakers {
		b.WriteString("LINSTOR adds and removes tie-breakers\n")
	}
	if world.Clients {
		b.WriteString("whom the CSI driver places without a disk has no vote\n")
	}
	if world.GroupQuorum {
		b.WriteString("a person has set majority on the resource group\n")
	}
	if len(world.Renew) > 0 {
		fmt.Fprintf(&b, "kubelets renew every %v\n", world.Renew)
	}
	if world.Clock != 0 {
		fmt.Fprintf(&b, "the API server's clock is ahead by %s\n", world.Clock)
	}
	if world.Late > 0 {
		fmt.Fprintf(&b, "caches take %s to start again\n", world.Late)
	}
	b.WriteString(world.Planned.String())
	for _, e := range world.Ended {
		fmt.Fprintf(&b, "a pod of %s is still listed as %s\n", e.Of, e.Phase)
	}
	return b.String()
}
